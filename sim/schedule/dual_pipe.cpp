// DualPipe: micro-batches enter at both ends of two copies of the network, and the forward of one
// overlaps with the backward of another. DualPipeV: the same by one copy folded into a V, so that
// half as many devices hold each layer once.
//
//   bubble (equal stages, no communication) = (p/2 - 1)(FB + B - 3W), DualPipeV (p - 1)(FB + B -
//   3W): FB an overlapped pair, B = I + W the whole backward; p devices.
//
// One rank runs eight steps. h: the ranks of one half (p/2; DualPipeV: p), r: how far the rank is
// from its end (DualPipeV: the rank), near and far: the direction that enters at its end, and the
// other (DualPipeV: chunk 0 and chunk 1), c: micro-batches per direction (DualPipeV: all).
//   1. 2(h-r-1) times  F near
//   2. r+1 times       F near, F far
//   3. h-r-1 times     I far, its W, F far
//   4. c-2h+r+1 times  F near with B far, F far with B near (the innermost rank does not overlap
//   the
//                      first pair)
//   5. h-r-1 times     B far, F far with B near
//   6. r+1 times       B far, B near; from the middle on without W, which waits
//   7. h-r-1 times     a W that waits, I near
//   8. r+1 times       a W that waits
//
// Source: DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, 3.2.1, and DualPipe's README and orders
// (github.com/deepseek-ai/DualPipe); DualPipeV there after Sea AI Lab's cut-in-half.
#include <fmt/format.h>

#include <deque>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

// One direction of one rank: which part of the stage, and which micro-batches are next.
struct Lane {
  int chunk = 0;
  std::uint8_t direction = 0;
  int next_forward = 0, next_backward = 0;  // micro-batches
};

class EightSteps {
 public:
  EightSteps(Lane near, Lane far) : near_(near), far_(far) {}

  std::vector<Slot> run(int half, int r, int count) {
    repeat(2 * (half - r - 1), [&](int) { forward(near_); });
    repeat(r + 1, [&](int) {
      forward(near_);
      forward(far_);
    });
    repeat(half - r - 1, [&](int) {
      backward_input(far_);
      weight();
      forward(far_);
    });
    repeat(count - 2 * half + r + 1, [&](int i) {
      const bool alone = i == 0 && r == half - 1;
      pair(near_, far_, !alone);
      pair(far_, near_, true);
    });
    repeat(half - r - 1, [&](int) {
      backward(far_);
      pair(far_, near_, true);
    });
    repeat(r + 1, [&](int i) { last_backwards(i, r); });
    repeat(half - r - 1, [&](int) {
      weight();
      backward_input(near_);
    });
    repeat(r + 1, [&](int) { weight(); });
    return std::move(slots_);
  }

 private:
  template <class Body>
  static void repeat(int times, Body body) {
    for (int i = 0; i < times; ++i)
      body(i);
  }
  // Split from the middle of the step on, which is between the two backwards if r is even.
  void last_backwards(int i, int r) {
    const int middle = (r + 1) / 2;
    if (i > middle || (i == middle && r % 2 == 1))
      backward_input(far_);
    else
      backward(far_);
    if (i >= middle)
      backward_input(near_);
    else
      backward(near_);
  }
  void forward(Lane& lane, bool paired = false) {
    slots_.push_back({Pass::forward, lane.next_forward++, lane.chunk, lane.direction, paired});
  }
  void backward(Lane& lane) {
    slots_.push_back({Pass::backward, lane.next_backward++, lane.chunk, lane.direction});
  }
  void pair(Lane& ahead, Lane& back, bool overlap) {
    forward(ahead, overlap);
    backward(back);
  }
  void backward_input(Lane& lane) {
    slots_.push_back({Pass::backward_input, lane.next_backward++, lane.chunk, lane.direction});
    waiting_.push_back(slots_.back());
  }
  void weight() {
    Slot slot = waiting_.front();
    waiting_.pop_front();
    slot.pass = Pass::backward_weight;
    slots_.push_back(slot);
  }

  Lane near_, far_;
  std::deque<Slot> waiting_;  // input gradients whose weight gradients have not been done
  std::vector<Slot> slots_;
};

}  // namespace

// Direction 0 runs the first half of the micro-batches, direction 1 the second.
std::vector<Slot> dual_pipe(const PipelineShape& shape, int stage) {
  const int p = shape.stages;
  const int count = shape.microbatches / 2;
  const Lane down{.direction = 0};
  const Lane up{.direction = 1, .next_forward = count, .next_backward = count};
  const bool upper = stage < p / 2;
  return EightSteps(upper ? down : up, upper ? up : down)
      .run(p / 2, upper ? stage : p - 1 - stage, count);
}

std::vector<Slot> dual_pipe_v(const PipelineShape& shape, int stage) {
  return EightSteps(Lane{.chunk = 0}, Lane{.chunk = 1})
      .run(shape.stages, stage, shape.microbatches);
}

std::optional<std::string> dual_pipe_unsupported(const PipelineShape& shape) {
  if (shape.stages % 2 != 0)
    return fmt::format("dualpipe needs an even number of stages, got {}", shape.stages);
  if (shape.microbatches % 2 != 0 || shape.microbatches < 2 * shape.stages)
    return fmt::format(
        "dualpipe needs an even number of micro-batches, at least two per stage ({}), got {}",
        2 * shape.stages, shape.microbatches);
  return std::nullopt;
}

std::optional<std::string> dual_pipe_v_unsupported(const PipelineShape& shape) {
  if (shape.microbatches < 2 * shape.stages)
    return fmt::format("dualpipe_v needs at least two micro-batches per stage ({}), got {}",
                       2 * shape.stages, shape.microbatches);
  return std::nullopt;
}

}  // namespace trainyard::schedule
