// Orders against those that Megatron-LM runs, written here from its scheduling rules
// (megatron/core/pipeline_parallel/schedules.py): a table of (micro-batch, chunk) in groups, a
// number of warm-up forwards, then one forward and one backward at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// The k-th visit of a stage: a group's micro-batches through one chunk after the other.
std::pair<int, int> visit(int k, int m, int v, int group) {
  const int whole = m / group * group;
  const bool in_whole_group = k < whole * v;
  const int size = in_whole_group ? group : m - whole;
  const int first = in_whole_group ? k / (group * v) * group : whole;
  const int within = in_whole_group ? k % (group * v) : k - whole * v;
  return {first + within % size, within / size};
}

std::vector<Slot> megatron(int p, int m, int v, int group, int stage) {
  const int total = m * v;
  const int ahead = v == 1 ? p - stage - 1 : 2 * (p - stage - 1) + (v - 1) * group;
  const int warmup = std::min(ahead, total);
  std::vector<Slot> slots;
  const auto forward = [&](int k) {
    const auto [microbatch, chunk] = visit(k, m, v, group);
    slots.push_back({Pass::forward, microbatch, chunk});
  };
  const auto backward = [&](int k) {
    const auto [microbatch, chunk] = visit(k, m, v, group);
    slots.push_back({Pass::backward, microbatch, v - 1 - chunk});
  };
  for (int k = 0; k < warmup; ++k)
    forward(k);
  for (int k = 0; k < total; ++k) {
    if (warmup + k < total) forward(warmup + k);
    backward(k);
  }
  return slots;
}

}  // namespace

// The example of its documentation: two stages, groups of three, five micro-batches, two chunks.
TEST_CASE("the table of visits is that of Megatron-LM's own example") {
  const std::vector<int> microbatches = {0, 1, 2, 0, 1, 2, 3, 4, 3, 4};
  const std::vector<int> chunks = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
  std::vector<Slot> forwards;
  const StageOrders orders = build_stages(*find_schedule("interleaved_1f1b"), {2, 5, 2, 3});
  for (const Slot& slot : orders[0])
    if (slot.pass == Pass::forward) forwards.push_back(slot);
  REQUIRE(forwards.size() == microbatches.size());
  for (std::size_t k = 0; k < forwards.size(); ++k) {
    CHECK(forwards[k].microbatch == microbatches[k]);
    CHECK(forwards[k].chunk == chunks[k]);
    CHECK(visit(static_cast<int>(k), 5, 2, 3) == std::pair(microbatches[k], chunks[k]));
  }
}

TEST_CASE("1F1B and interleaved 1F1B run in the order of Megatron-LM, remainders too") {
  int remainders = 0;
  for (int p = 2; p <= 6; ++p) {
    for (int m = 1; m <= 20; ++m) {
      const StageOrders plain = build_stages(*find_schedule("1f1b"), {p, m});
      for (int s = 0; s < p; ++s)
        CHECK(plain[static_cast<std::size_t>(s)] == megatron(p, m, 1, p, s));
      for (int v = 2; v <= 4; ++v) {
        for (int group = p; group <= m; ++group) {
          const PipelineShape shape = {p, m, v, group};
          if (interleaved_unsupported(shape)) continue;
          const StageOrders orders = build_stages(*find_schedule("interleaved_1f1b"), shape);
          remainders += m % group == 0 ? 0 : 1;
          for (int s = 0; s < p; ++s)
            CHECK(orders[static_cast<std::size_t>(s)] == megatron(p, m, v, group, s));
        }
      }
    }
  }
  CHECK(remainders > 100);
}

// Megatron-LM raises an error for exactly these.
TEST_CASE("interleaved 1F1B takes the micro-batches that Megatron-LM takes") {
  for (int p = 2; p <= 6; ++p)
    for (int m = 1; m <= 24; ++m)
      for (int group = 1; group <= 26; ++group) {
        const int rest = m % group;
        const bool taken = group >= p && group <= m && (rest == 0 || rest >= p);
        CHECK(interleaved_unsupported({p, m, 2, group}).has_value() != taken);
      }
}

// A remainder of at least p costs nothing: (m v + p - 1)(F + B), as if m were a multiple of p.
TEST_CASE("a last group of at least p micro-batches adds no bubble") {
  for (int p = 2; p <= 5; ++p) {
    for (int v = 2; v <= 3; ++v) {
      for (int group = p; group <= 2 * p; ++group) {
        for (int m = group; m <= 4 * p; ++m) {
          const PipelineShape shape = {p, m, v, group};
          if (interleaved_unsupported(shape)) continue;
          CAPTURE(p);
          CAPTURE(v);
          CAPTURE(group);
          CAPTURE(m);
          const StageOrders orders = build_stages(*find_schedule("interleaved_1f1b"), shape);
          CHECK(longest_path(shape, orders, equal_stages(3, 7)).makespan == (m * v + p - 1) * 10);
        }
      }
    }
  }
}
