#include <nlohmann/json.hpp>

#include "sim/simulate/monitor/monitor.h"

namespace trainyard::simulate {

namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json column(const MonitoredRank& rank, const Value& value) {
  Json list = Json::array();
  for (const MonitorSample& sample : rank.samples)
    list.push_back(value(sample));
  return list;
}

Json known(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json rank_json(const MonitoredRank& rank) {
  using S = const MonitorSample&;
  return {{"rank", rank.rank},
          {"count", rank.count},
          {"stage", rank.stage},
          {"memory_held_bytes", rank.held.count()},
          {"memory_capacity_bytes", rank.capacity.count()},
          {"energy_j", known(rank.joules)},
          {"busy", column(rank, [](S s) { return s.busy; })},
          {"kernels", column(rank, [](S s) { return s.kernels; })},
          {"multiprocessors", column(rank, [](S s) { return s.multiprocessors; })},
          {"memory_controller", column(rank, [](S s) { return s.memory_controller; })},
          {"memory_live_bytes", column(rank, [](S s) { return s.memory.count(); })},
          {"pcie_in_bytes", column(rank, [](S s) { return s.pcie.in; })},
          {"pcie_out_bytes", column(rank, [](S s) { return s.pcie.out; })},
          {"nvlink_in_bytes", column(rank, [](S s) { return s.links.in; })},
          {"nvlink_out_bytes", column(rank, [](S s) { return s.links.out; })},
          {"power_w", column(rank, [](S s) { return known(s.watts); })},
          {"temperature_c", column(rank, [](S s) { return known(s.celsius); })}};
}

}  // namespace

std::string monitor_json(const Monitor& monitor, int indent) {
  Duration whole{};
  if (!monitor.ranks.empty())
    for (const MonitorSample& sample : monitor.ranks.front().samples)
      whole += sample.length;
  Json json = {{"gpu", monitor.gpu},
               {"interval_s", Seconds(monitor.interval).count()},
               {"step_s", Seconds(whole).count()}};
  json["begin_s"] = Json::array();
  if (!monitor.ranks.empty())
    for (const MonitorSample& sample : monitor.ranks.front().samples)
      json["begin_s"].push_back(Seconds(sample.begin).count());
  json["ranks"] = Json::array();
  for (const MonitoredRank& rank : monitor.ranks)
    json["ranks"].push_back(rank_json(rank));
  return json.dump(indent);
}

}  // namespace trainyard::simulate
