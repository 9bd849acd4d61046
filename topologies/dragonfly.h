// The links of a dragonfly: groups of routers that are all joined to each other, and groups that
// are all joined by global links.
//
//   Global port j of group G (j = 0 .. routers x global_links - 1, router j / global_links has it)
//   goes to group G + 1 + j mod (groups - 1), as its cable number j / (groups - 1); ports that
//   would make some pairs of groups richer than others stay empty.
//
// A route takes the fewest hops: a local link to a router that has a cable to the other group, the
// cable, a local link. Source: Kim, Dally, Scott, Abts, Technology-driven, highly-scalable
// dragonfly topology, ISCA 2008, sections 3.1 and 4.1 (minimal routing).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topologies/cluster.h"
#include "topologies/topology.h"
#include "topologies/way_choice.h"

namespace trainyard::topologies {

// Of the NICs of a cluster; 1 where one group has them all.
int dragonfly_groups(const Dragonfly& shape, std::int64_t nics);

class DragonflyLinks {
 public:
  // Routers are numbered group after group. `line_rate`: of links that state none. Requires: NICs
  // that the shape reaches.
  DragonflyLinks(const Dragonfly& shape, std::int64_t nics, BytesPerSecond line_rate,
                 std::uint32_t first_link);

  int routers() const { return groups_ * shape_.routers_per_group; }
  std::int64_t count() const;

  struct Ends {
    int from = 0, to = 0;  // routers
    bool global = false;
  };
  // Hands on each link in the order of ids.
  void for_each(const std::function<void(const Ends&)>& action) const;
  BytesPerSecond bandwidth(bool global) const;
  // Of a group: what its NICs send at most over what its cables to all other groups carry, with
  // NICs of the line rate; 0 of one group.
  double oversubscription() const;
  Duration latency(bool global) const;

  // Appends the links between two routers, choosing among equal ways by `choice`.
  void append_route(int from, int to, WayChoice& choice, std::vector<LinkId>& route) const;
  Duration route_latency(int from, int to) const;

 private:
  struct Way {
    int cable = 0;
    int hops = 0;  // local ones
  };
  int group_of(int router) const { return router / shape_.routers_per_group; }
  // The router of a group that has a cable to another one.
  int gateway(int group, int other, int cable) const;
  // Of all cables between the groups of two routers those with fewest hops.
  std::vector<Way> ways(int from, int to) const;
  LinkId local_link(int from, int to) const;
  LinkId global_link(int group, int other, int cable) const;
  int offset(int group, int other) const { return (other - group - 1 + groups_) % groups_; }

  Dragonfly shape_;
  int groups_ = 1, cables_ = 0;  // cables: between two groups
  BytesPerSecond line_rate_;
  std::uint32_t first_link_ = 0;
};

}  // namespace trainyard::topologies
