#include "topologies/dragonfly.h"

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::topologies {

int dragonfly_groups(const Dragonfly& shape, std::int64_t nics) {
  return static_cast<int>(
      divide_up(nics, std::int64_t{shape.nics_per_router} * shape.routers_per_group));
}

DragonflyLinks::DragonflyLinks(const Dragonfly& shape, std::int64_t nics, BytesPerSecond line_rate,
                               std::uint32_t first_link)
    : shape_(shape),
      groups_(dragonfly_groups(shape, nics)),
      line_rate_(line_rate),
      first_link_(first_link) {
  if (groups_ == 1) return;
  cables_ = shape.routers_per_group * shape.global_links / (groups_ - 1);
  TRAINYARD_CHECK(cables_ > 0, "{} groups of {} routers with {} global links each", groups_,
                  shape.routers_per_group, shape.global_links);
}

std::int64_t DragonflyLinks::count() const {
  const std::int64_t groups = groups_, routers = shape_.routers_per_group;
  return groups * (routers * (routers - 1) + (groups - 1) * cables_);
}

void DragonflyLinks::for_each(const std::function<void(const Ends&)>& action) const {
  const int routers = shape_.routers_per_group;
  for (int from = 0; from < groups_ * routers; ++from)
    for (int other = 0; other < routers; ++other) {
      const int to = group_of(from) * routers + other;
      if (to != from) action({from, to, false});
    }
  for (int group = 0; group < groups_; ++group)
    for (int next = 1; next < groups_; ++next) {
      const int other = (group + next) % groups_;
      for (int cable = 0; cable < cables_; ++cable)
        action({gateway(group, other, cable), gateway(other, group, cable), true});
    }
}

BytesPerSecond DragonflyLinks::bandwidth(bool global) const {
  const BytesPerSecond own = global ? shape_.global_bandwidth : shape_.local_bandwidth;
  return own.count() > 0 ? own : line_rate_;
}

double DragonflyLinks::oversubscription() const {
  if (groups_ == 1) return 0;
  const double nics = static_cast<double>(shape_.nics_per_router) * shape_.routers_per_group;
  const double cables = static_cast<double>(groups_ - 1) * cables_;
  return nics * line_rate_.count() / (cables * bandwidth(true).count());
}

Duration DragonflyLinks::latency(bool global) const {
  return shape_.switch_latency + (global ? shape_.global_latency : Duration{0});
}

int DragonflyLinks::gateway(int group, int other, int cable) const {
  const int port = cable * (groups_ - 1) + offset(group, other);
  return group * shape_.routers_per_group + port / shape_.global_links;
}

LinkId DragonflyLinks::local_link(int from, int to) const {
  const int routers = shape_.routers_per_group;
  const int own = from % routers, other = to % routers;
  return static_cast<LinkId>(first_link_ + static_cast<std::uint32_t>(from * (routers - 1) + other -
                                                                      (other > own ? 1 : 0)));
}

LinkId DragonflyLinks::global_link(int group, int other, int cable) const {
  const int routers = shape_.routers_per_group;
  const int number = (group * (groups_ - 1) + offset(group, other)) * cables_ + cable;
  return static_cast<LinkId>(
      first_link_ + static_cast<std::uint32_t>(groups_ * routers * (routers - 1) + number));
}

std::vector<DragonflyLinks::Way> DragonflyLinks::ways(int from, int to) const {
  std::vector<Way> best;
  for (int cable = 0; cable < cables_; ++cable) {
    const int hops = (gateway(group_of(from), group_of(to), cable) != from ? 1 : 0) +
                     (gateway(group_of(to), group_of(from), cable) != to ? 1 : 0);
    if (!best.empty() && hops > best.front().hops) continue;
    if (!best.empty() && hops < best.front().hops) best.clear();
    best.push_back({cable, hops});
  }
  return best;
}

void DragonflyLinks::append_route(int from, int to, WayChoice& choice,
                                  std::vector<LinkId>& route) const {
  if (from == to) return;
  const int group = group_of(from), other = group_of(to);
  if (group == other) {
    route.push_back(local_link(from, to));
    return;
  }
  const std::vector<Way> equal = ways(from, to);
  const int cable =
      equal[static_cast<std::size_t>(choice.among(static_cast<int>(equal.size())))].cable;
  const int out = gateway(group, other, cable), in = gateway(other, group, cable);
  if (out != from) route.push_back(local_link(from, out));
  route.push_back(global_link(group, other, cable));
  if (in != to) route.push_back(local_link(in, to));
}

Duration DragonflyLinks::route_latency(int from, int to) const {
  if (from == to) return Duration{0};
  if (group_of(from) == group_of(to)) return latency(false);
  return latency(true) + ways(from, to).front().hops * latency(false);
}

}  // namespace trainyard::topologies
