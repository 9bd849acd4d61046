// Gathers parameters ahead of the places that need them. Routed experts of a unit go the same way
// in the group of their own replicas; where there is one, they are only cast.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "sim/plan/replicas/parts/gather_units.h"
#include "sim/plan/replicas/parts/host_shards.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

class Gather : public ReplicaPart {
 public:
  // `context` must outlive it. Requires: the strategy gathers in passes.
  Gather(ReplicaContext& context, const GatherOptions& options);

  PassRole distinguishes(bool forward) const override;
  void begin() override;
  void before(int place) override;
  void after(int place) override;

  // Units of the open block of which `place` is the last.
  std::vector<GatherUnit> leaving(int place) const;
  // The pass is done with a unit.
  void leave(const GatherUnit& unit);

 private:
  // Whether every pass gathers; else only the first forward pass after an update does.
  bool each_pass() const { return context_.strategy().gathering == Gathering::each_pass; }
  // Whether the group's parameters of the unit are elsewhere.
  bool travels(const GatherUnit& unit, std::size_t group) const;
  Bytes gathered_bytes(const GatherUnit& unit) const;
  Bytes bytes(const GatherUnit& unit, std::size_t group) const;  // of its weights, whole
  // The copy in the compute type, into which parameters that did not travel are cast.
  Bytes copied_bytes(const GatherUnit& unit) const;
  // Enqueues the gathers of the units before `end`.
  void fetch_until(std::size_t end);
  void fetch(std::size_t number);
  // The computation of a unit waits for its parameters, and those of the units after it are
  // enqueued.
  void arrive(std::size_t number);
  // Out of the gathered buffer, in which the shards of a parameter lie apart, into the parameters.
  void copy_out(const GatherUnit& unit);

  ReplicaContext& context_;
  GatherOptions options_;
  HostShards shards_;
  std::vector<GatherUnit> units_;
  std::multimap<int, std::size_t> entering_, leaving_;  // numbers of units, by place
  std::size_t fetched_ = 0;  // units whose gather is enqueued, if they have one
};

}  // namespace trainyard::plan
