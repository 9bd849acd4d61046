// The automatic zero-bubble scheduler: the best of many orders for given pass times, message times
// and memory, ZB-H1 and ZB-H2 among them.
//
// An order is made by letting all stages work in time: a stage that is free takes an input gradient
// if one has arrived, else a forward if it may, else a weight gradient. What differs between the
// orders is how far forwards may run ahead, whether forwards and backwards take turns, and whether
// a weight gradient may make a pass wait that is known to arrive soon. Forwards never take a stage
// over the memory limit: weight gradients are done first, which give memory back.
//
// Source: the idea and the choices are those of Qi, Wan, Huang, Lin, Zero Bubble Pipeline
// Parallelism, ICLR 2024, 3.1; "best" is the makespan that sim/schedule/order_timing.h finds.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "sim/base/check.h"
#include "sim/schedule/order_timing.h"
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

enum class Lead : std::uint8_t { as_h1, between, as_h2, as_memory_allows };

struct Policy {
  Lead lead = Lead::as_h1;
  bool in_turn = false;  // after a backward comes a forward, if one may run
  bool patient = false;  // a weight gradient does not make a known arrival wait
};

// How many forwards of a stage may have begun whose backward has not.
int most_ahead(Lead lead, int stages, int stage, int microbatches) {
  const int left = stages - stage;
  switch (lead) {
    case Lead::as_h1: return left;
    case Lead::between: return left + (left - 1) / 2;
    case Lead::as_h2: return 2 * left - 1;
    case Lead::as_memory_allows: break;
  }
  return microbatches;
}

class Greedy {
 public:
  Greedy(const PipelineShape& shape, const ScheduleInputs& inputs, const Policy& policy)
      : shape_(shape), inputs_(inputs), policy_(policy) {
    for (int s = 0; s < shape.stages; ++s) {
      Stage stage;
      stage.forward_at.assign(static_cast<std::size_t>(shape.microbatches), kUnknown);
      stage.gradient_at = stage.forward_at;
      stage.most_ahead = most_ahead(policy.lead, shape.stages, s, shape.microbatches);
      stages_.push_back(std::move(stage));
    }
    for (Duration& at : stages_.front().forward_at)
      at = Duration(0);
    wake(Duration(0), 0);
  }

  StageOrders run() {
    while (!wakes_.empty()) {
      const auto [at, stage] = wakes_.top();
      wakes_.pop();
      decide(stage, at);
    }
    StageOrders orders;
    for (Stage& stage : stages_)
      orders.push_back(std::move(stage.done));
    return orders;
  }

 private:
  static constexpr Duration kUnknown = Duration::max();
  struct Stage {
    std::vector<Slot> done;
    std::vector<Duration> forward_at, gradient_at;  // arrivals, by micro-batch
    int forwards = 0, inputs = 0, weights = 0;      // begun
    int most_ahead = 0;
    Bytes live{};
    Duration free_at{};
    bool last_was_backward = false;
  };
  using Wake = std::pair<Duration, int>;

  Stage& at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  const PassTimes& times(int stage) const { return inputs_.times[static_cast<std::size_t>(stage)]; }
  void wake(Duration at, int stage) { wakes_.push({at, stage}); }

  // When the next pass of a kind is there; kUnknown also if there is none.
  Duration next_forward(const Stage& own) const {
    if (own.forwards == shape_.microbatches || own.forwards - own.inputs >= own.most_ahead)
      return kUnknown;
    return own.forward_at[static_cast<std::size_t>(own.forwards)];
  }
  Duration next_gradient(const Stage& own) const {
    if (own.inputs == own.forwards) return kUnknown;
    return own.gradient_at[static_cast<std::size_t>(own.inputs)];
  }

  void decide(int stage, Duration now) {
    Stage& own = at(stage);
    if (now < own.free_at) return;  // it is woken again when it is free
    const bool room = own.live + times(stage).activations <= inputs_.memory_limit(stage);
    const Duration forward = next_forward(own), gradient = next_gradient(own);
    const bool can_forward = room && forward <= now;
    const bool can_input = gradient <= now;
    if (can_input && !(policy_.in_turn && own.last_was_backward && can_forward))
      return input(stage, now);
    if (can_forward) return run_forward(stage, now);
    if (own.weights == own.inputs) return;
    const Duration arrival = std::min(gradient, room ? forward : kUnknown);
    const bool fits = arrival == kUnknown || now + times(stage).backward_weight <= arrival;
    if (policy_.patient && !fits) return;  // woken by the arrival
    begin({Pass::backward_weight, own.weights++}, stage, now, times(stage).backward_weight);
    own.live = own.live - times(stage).activations;
  }

  void begin(const Slot& slot, int stage, Duration now, Duration takes) {
    Stage& own = at(stage);
    own.done.push_back(slot);
    own.free_at = now + takes;
    wake(own.free_at, stage);
  }
  void run_forward(int stage, Duration now) {
    Stage& own = at(stage);
    const int i = own.forwards++;
    begin({Pass::forward, i}, stage, now, times(stage).forward);
    own.live = own.live + times(stage).activations;
    own.last_was_backward = false;
    if (stage + 1 < shape_.stages)
      arrive(stage + 1, at(stage + 1).forward_at, i, own.free_at + times(stage).communication);
    else
      own.gradient_at[static_cast<std::size_t>(i)] = own.free_at;
  }
  void input(int stage, Duration now) {
    Stage& own = at(stage);
    const int i = own.inputs++;
    begin({Pass::backward_input, i}, stage, now, times(stage).backward_input);
    own.last_was_backward = true;
    if (stage > 0)
      arrive(stage - 1, at(stage - 1).gradient_at, i, own.free_at + times(stage).communication);
  }
  void arrive(int stage, std::vector<Duration>& arrivals, int microbatch, Duration when) {
    arrivals[static_cast<std::size_t>(microbatch)] = when;
    wake(when, stage);
  }

  const PipelineShape& shape_;
  const ScheduleInputs& inputs_;
  Policy policy_;
  std::vector<Stage> stages_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

StageOrders fixed(const PipelineShape& shape,
                  std::vector<Slot> (*order)(const PipelineShape&, int)) {
  StageOrders stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(order(shape, stage));
  return stages;
}

std::vector<StageOrders> candidates(const PipelineShape& shape, const ScheduleInputs& inputs) {
  std::vector<StageOrders> all = {fixed(shape, zero_bubble_h1), fixed(shape, zero_bubble_h2)};
  for (const Lead lead : {Lead::as_h1, Lead::between, Lead::as_h2, Lead::as_memory_allows})
    for (const bool in_turn : {false, true})
      for (const bool patient : {false, true})
        all.push_back(Greedy(shape, inputs, {lead, in_turn, patient}).run());
  return all;
}

}  // namespace

StageOrders zero_bubble_auto(const PipelineShape& shape, const ScheduleInputs& given) {
  std::vector<PassTimes> otherwise;
  ScheduleInputs inputs = given;
  if (inputs.times.empty()) {
    otherwise = uniform_times(shape, kDrawingTimes);
    inputs.times = otherwise;
  }
  StageOrders best;
  std::tuple<Duration, Duration, Bytes> best_cost;
  for (StageOrders& candidate : candidates(shape, inputs)) {
    const std::vector<Bytes> peaks = peak_activations(shape, candidate, inputs.times);
    bool fits = true;
    for (int stage = 0; stage < shape.stages; ++stage)
      fits = fits && peaks[static_cast<std::size_t>(stage)] <= inputs.memory_limit(stage);
    if (!fits) continue;
    const Bytes peak = *std::max_element(peaks.begin(), peaks.end());
    const OrderRun run = run_orders(shape, candidate, inputs.times);
    const std::tuple cost{run.makespan(), run.longest_span(), peak};
    if (!best.empty() && best_cost <= cost) continue;
    best_cost = cost;
    best = std::move(candidate);
  }
  // A stage that holds one micro-batch at a time can always go on.
  TRAINYARD_CHECK(!best.empty(), "the memory limit is less than one micro-batch");
  return best;
}

}  // namespace trainyard::schedule
