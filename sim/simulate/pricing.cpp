#include "sim/simulate/pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/layer/peak.h"
#include "sim/cost/borrowed/median.h"
#include "sim/cost/borrowed/sustained.h"
#include "sim/scenario/gpu_origin.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

namespace {

// Shares for types that the GPU has.
std::vector<cost::SustainedShare> shares_for(const topologies::GpuSpec& gpu,
                                             const topologies::SustainedShares& measured,
                                             const std::string& name) {
  std::vector<cost::SustainedShare> shares;
  for (const models::Dtype dtype : models::kDtypes)
    if (models::peak_of(measured, dtype) > 0 && models::peak_of(gpu, dtype).count() > 0)
      shares.push_back(
          {dtype, models::peak_of(measured, dtype), name.empty() ? "a GPU without a name" : name});
  return shares;
}

// Its own, else those of its neighbours. A board's power holds tensor cores back, so shares of
// theirs are of one board: where any is its own, the others follow that.
std::vector<cost::SustainedShare> shares_nearby(const topologies::GpuSpec& gpu,
                                                const std::string& configs) {
  std::vector<cost::SustainedShare> shares = shares_for(gpu, gpu.sustained, gpu.name);
  const bool knows_tensor_cores = std::any_of(shares.begin(), shares.end(), [](const auto& own) {
    return own.dtype != models::Dtype::fp32;
  });
  for (scenario::NeighbourShares& others : scenario::neighbour_shares(gpu, configs)) {
    const bool has_own =
        others.dtype == models::Dtype::fp32 ? gpu.sustained.fp32 > 0 : knows_tensor_cores;
    if (!has_own)
      shares.push_back(
          {others.dtype, cost::median(std::move(others.shares)), std::move(others.gpus)});
  }
  return shares;
}

// Its own, else those of the GPU that the profile is of.
std::vector<cost::SustainedShare> shares_beside(const std::string& fitted,
                                                const topologies::GpuSpec& gpu,
                                                const std::string& configs) {
  std::vector<cost::SustainedShare> shares = shares_for(gpu, gpu.sustained, gpu.name);
  for (cost::SustainedShare& other :
       shares_for(gpu, scenario::sustained_of(fitted, configs), fitted))
    if (models::peak_of(gpu.sustained, other.dtype) == 0) shares.push_back(std::move(other));
  return shares;
}

// "rtx-3090; l4, l40s": each once.
std::string gpus_of(const std::vector<cost::SustainedShare>& shares) {
  std::vector<std::string> names;
  for (const cost::SustainedShare& share : shares)
    if (std::find(names.begin(), names.end(), share.gpus) == names.end())
      names.push_back(share.gpus);
  return fmt::format("{}", fmt::join(names, "; "));
}

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
  // Where it is not said how many it has, those of its kin stand in, as below.
  if (server.gpu.multiprocessors > 1) keep_tiles_of(*result.profile, server.gpu.multiprocessors);
  result.uncalibrated = result.profile->name;
  const std::vector<cost::SustainedShare> shares = shares_nearby(server.gpu, configs);
  take_sustained(*result.profile, peaks(server.gpu), shares);
  if (!shares.empty() && !result.profile->gemm.empty())
    result.uncalibrated += ", products as measured on " + gpus_of(shares);
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
  add_sustained(*result.profile, peaks(server.gpu), shares_beside(fitted, server.gpu, configs));
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
  machine->works = std::make_shared<models::NetworkWorks>();
  machine->prices = prices_of(scenario.profiles, machine->cluster, scenario.configs);
  if (scenario.shared != nullptr) machines_.emplace(scenario.shared, machine);
  return machine;
}

}  // namespace trainyard::simulate
