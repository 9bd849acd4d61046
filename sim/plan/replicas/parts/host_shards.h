// Shards of parameters that live on the host or on NVMe: each is copied up right before its unit is
// gathered. Source: Rajbhandari et al., ZeRO-Infinity, SC 2021, section 6.2.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/plan/replicas/parts/gather_units.h"

namespace trainyard::plan {

class HostShards {
 public:
  // `context` must outlive it. `limit`: what the copies of a unit wait for.
  HostShards(ReplicaContext& context, StreamSet limit) : context_(context), limit_(limit) {}

  // A pass begins, and nothing of it is read from NVMe.
  void begin() { read_ = 0; }
  // Fetches the shard of a unit, and returns what its gather has to wait for. From NVMe a shard is
  // read while the unit before it is fetched.
  StreamSet fetch(const std::vector<GatherUnit>& units, std::size_t number);
  // The op written last, which is the gather, gives back the fetched shard.
  void leave(const GatherUnit& unit);

 private:
  bool used() const;
  Bytes shard(const GatherUnit& unit) const;
  // Reads the shard of the next unit that gathers, from `number` on, unless it is read already.
  void read(const std::vector<GatherUnit>& units, std::size_t number);

  ReplicaContext& context_;
  StreamSet limit_;
  std::size_t read_ = 0;  // units whose shard is read from NVMe
};

}  // namespace trainyard::plan
