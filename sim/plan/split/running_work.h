// The layers as a micro-batch runs them: with what runs again, or, for one of a step, without.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/stage/place_labels.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

class RunningWork {
 public:
  // Both must outlive it.
  RunningWork(const StepPlan& step, const DealtWork& dealt)
      : step_(step), dealt_(dealt), running_(&dealt.placed) {}

  // Which micro-batch of a step does not run again, by the order of a stage: the one whose backward
  // pass comes first.
  void take_order(const std::vector<schedule::Slot>& order) {
    for (const schedule::Slot& slot : order) {
      if (!dealt_.whole || slot.pass == schedule::Pass::forward) continue;
      kept_whole_ = of_step(slot);
      return;
    }
  }
  bool keeps_whole(const schedule::Slot& slot) const { return kept_whole_ == of_step(slot); }

  // The pass that is written from here on is of such a one.
  void run(bool whole) { running_ = whole ? &*dealt_.whole : &dealt_.placed; }

  const models::LayerWork& layer(int place) const {
    const models::NetworkWork& work = running_->work;
    return work.kinds[static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)])];
  }
  ChainRange again(int place) const { return running_->again[static_cast<std::size_t>(place)]; }
  // What labels call what the place keeps (KeptByPlace::owner), with a sign for its name.
  std::string owner(int place) const {
    return running_ == &dealt_.placed ? place_sign(place) : place_sign(place) + kNotRunAgain;
  }

 private:
  int of_step(const schedule::Slot& slot) const {
    return slot.microbatch % step_.shape.microbatches;
  }

  const StepPlan& step_;
  const DealtWork& dealt_;
  const RecomputePlaces* running_;
  std::optional<int> kept_whole_;
};

}  // namespace trainyard::plan
