// Gradients that are reduced place by place, in whatever they are put together: when, and what of
// them a rank holds until then.
#pragma once

#include "sim/plan/replicas/parts/host_optimizer.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

class ReduceByPlace : public ReplicaPart {
 public:
  // `context` must outlive it. `always_in_backward`: even if the plan does not overlap them.
  ReduceByPlace(ReplicaContext& context, bool always_in_backward)
      : host_(context), context_(context), always_in_backward_(always_in_backward) {}

  PassRole distinguishes(bool forward) const override;
  void before(int place) override;
  void after(int place) override;
  void end() override;
  void step(const StageParameters& stage, const std::vector<ChainRange>& copies) override;

 protected:
  // Whether the open pass is one whose gradients are reduced in it.
  bool reduces_now() const;

  HostOptimizer host_;

 private:
  // Sends the gradients of a place, or keeps them for the next place.
  virtual void reduce_place(int place) = 0;
  // Sends all gradients of the stage at once but for a rest.
  virtual void reduce_stage(const StageParameters& stage) = 0;
  virtual void reduce_rest() = 0;

  bool in_backward() const;
  void reduce_all(const StageParameters& stage, const std::vector<ChainRange>& copies);

  ReplicaContext& context_;
  bool always_in_backward_;
};

}  // namespace trainyard::plan
