// Reduces gradients unit by unit (FSDP): those of a layer go, cast, into a buffer that is
// scattered, and their shards exist from then until the optimizer step. One such buffer is in
// flight at a time. Where only the last micro-batch is reduced, the others add to whole gradients.
#pragma once

#include <string>

#include "sim/plan/replicas/parts/gather_units.h"
#include "sim/plan/replicas/parts/host_optimizer.h"

namespace trainyard::plan {

class UnitReduction {
 public:
  // `context` must outlive it. `type`: in which gradients are reduced.
  UnitReduction(ReplicaContext& context, models::Dtype type)
      : context_(context), host_(context), type_(type) {}

  PassRole distinguishes(bool forward) const;
  void before(int place);
  // The pass has completed the gradients of a unit.
  void leave(const GatherUnit& unit);
  void step();

 private:
  // Adds the gradients of a unit, `produced` bytes, to those of the micro-batches before.
  void accumulate(const GatherUnit& unit, Bytes produced, Bytes cast);
  void reduce(const GatherUnit& unit, Bytes produced, Bytes cast);
  void scatter(std::int64_t parameters, const ReplicaGroup& group, const std::string& name);
  void copy_to_host(const GatherUnit& unit);
  // Of the gradients that stay until the step, what a reduction in this pass is the first to need;
  // all that it makes if they leave for the host.
  Bytes kept_gradients(std::int64_t parameters, const ReplicaGroup& group);

  ReplicaContext& context_;
  HostOptimizer host_;
  models::Dtype type_;
};

}  // namespace trainyard::plan
