#include "sim/simulate/gpu_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace trainyard::simulate {

std::unique_ptr<cost::MessageCost> message_cost(std::span<const GpuPrice> prices) {
  std::vector<std::unique_ptr<cost::MessageCost>> costs;
  for (const GpuPrice& price : prices)
    costs.push_back(price.profile ? fitted_message_cost(*price.profile)
                                  : cost::closed_form_message_cost());
  return costs.size() == 1 ? std::move(costs.front()) : message_cost_by_kind(std::move(costs));
}

PricedBy priced_by(const topologies::ClusterSpec& cluster, std::span<const GpuPrice> prices) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(cluster);
  const std::vector<bool> in_use = gpu_kinds_used(cluster);
  const bool several = std::count(in_use.begin(), in_use.end(), true) > 1;
  std::set<std::string> told;
  PricedBy words;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string& gpu = kinds[kind].gpu->name;
    if (!in_use[kind] || !told.insert(gpu).second) continue;
    const auto add = [&](std::string& text, const std::string& word) {
      if (word.empty()) return;
      text += text.empty() ? "" : ", ";
      text += !several || word == gpu ? word : fmt::format("{} ({})", word, gpu);
    };
    const cost::Profile* profile = prices[kind].profile.get();
    add(words.profile, profile ? profile->name : "none (datasheet and closed forms)");
    add(words.uncalibrated, prices[kind].uncalibrated);
  }
  return words;
}

}  // namespace trainyard::simulate
