#include "sim/simulate/pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/scenario/gpu_origin.h"

namespace trainyard::simulate {

namespace {

Pricing by_kin(const topologies::ServerSpec& server, const std::string& configs) {
  std::vector<cost::Kin> kin;
  std::vector<int> multiprocessors;
  for (const scenario::FittedGpu& fitted : scenario::fitted_kin(server.gpu, configs)) {
    cost::Profile profile = cost::read_profile(fitted.profile);
    const double arithmetic = cost::share_at_power(profile, server.gpu.busy_power, fitted.peaks);
    kin.push_back({std::move(profile), fitted.link, arithmetic});
    multiprocessors.push_back(fitted.multiprocessors);
  }
  if (kin.empty()) return {std::nullopt, "datasheets, as no GPU is fitted", 1};
  const bool has_switch = server.intra == topologies::IntraKind::nvswitch;
  Pricing result;
  result.profile = median_profile(kin, has_switch ? server.intra_bandwidth : BytesPerSecond(0));
  result.uncalibrated = result.profile->name;
  std::sort(multiprocessors.begin(), multiprocessors.end());
  result.multiprocessors = multiprocessors[multiprocessors.size() / 2];
  return result;
}

Pricing by_profile(const std::string& path, const topologies::ServerSpec& server,
                   const std::string& configs) {
  Pricing result{cost::read_profile(path), "", 1};
  const std::string& fitted = result.profile->gpu;
  const std::vector<std::string> differences =
      scenario::differences_from(fitted, server.gpu, configs);
  result.multiprocessors = scenario::multiprocessors_of(fitted, configs);
  if (differences.empty()) return result;
  result.uncalibrated =
      fitted == server.gpu.name
          ? fmt::format("the profile of {} with another {}", fitted, fmt::join(differences, ", "))
          : fmt::format("the profile of {}", fitted);
  result.profile = for_other_gpu(std::move(*result.profile));
  return result;
}

}  // namespace

Pricing pricing_of(const scenario::ProfileChoice& choice, const topologies::ServerSpec& server,
                   const std::string& configs) {
  Pricing result{std::nullopt, "datasheets", 1};
  if (choice.of_kind)
    result = by_kin(server, configs);
  else if (!choice.path.empty())
    result = by_profile(choice.path, server, configs);
  // A collective holds some of them, so that one would be all.
  if (server.gpu.multiprocessors > 1) result.multiprocessors = server.gpu.multiprocessors;
  return result;
}

std::vector<GpuPrice> prices_of(const std::vector<scenario::ProfileChoice>& choices,
                                topologies::ClusterSpec& cluster, const std::string& configs) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(cluster);
  std::vector<GpuPrice> prices;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    topologies::ServerSpec server = *kinds[kind].server;
    server.gpu = *kinds[kind].gpu;
    Pricing own = pricing_of(choices.at(kind), server, configs);
    gpu_of_kind(cluster, static_cast<int>(kind)).multiprocessors = own.multiprocessors;
    prices.push_back({std::move(own.profile), std::move(own.uncalibrated)});
  }
  return prices;
}

std::shared_ptr<const PricedMachines::Machine> PricedMachines::of(
    const scenario::Scenario& scenario) {
  const std::scoped_lock lock(mutex_);
  if (scenario.shared != nullptr)
    if (const auto known = machines_.find(scenario.shared); known != machines_.end())
      return known->second;
  auto machine = std::make_shared<Machine>();
  machine->cluster = scenario.cluster;
  machine->prices = prices_of(scenario.profiles, machine->cluster, scenario.configs);
  if (scenario.shared != nullptr) machines_.emplace(scenario.shared, machine);
  return machine;
}

}  // namespace trainyard::simulate
