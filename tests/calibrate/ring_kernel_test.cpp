// The ring kernel itself, every thread of every block a thread of the CPU: its slots, flags and
// counts against the definition of each collective. Under ThreadSanitizer it also shows that flags
// and barriers order all accesses.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

// CUDA's words, as far as the kernel uses them.
#define __device__
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 __ldcg(const float4* at) {
  return *at;
}
inline float __ldcg(const float* at) {
  return *at;
}

namespace emulated_block {

constexpr int kThreads = 3;  // fewer than ranks, and no power of two: every loop has an uneven end

class Barrier {
 public:
  void arrive_and_wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (++arrived_ == kThreads) {
      arrived_ = 0;
      ++generation_;
      all_.notify_all();
      return;
    }
    const unsigned generation = generation_;
    all_.wait(lock, [&] { return generation_ != generation; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  int arrived_ = 0;
  unsigned generation_ = 0;
};

struct Block {
  Barrier barrier;
  std::array<std::atomic<int>, 2> any{};
};
struct Thread {
  unsigned x = 0;
  Block* block = nullptr;
  int round = 0;
};
inline thread_local Thread thread;

}  // namespace emulated_block

#define threadIdx ::emulated_block::thread

inline void __syncthreads() {
  emulated_block::thread.block->barrier.arrive_and_wait();
}
// Two words in turn: one is cleared while nobody can be at it.
inline int __syncthreads_or(int predicate) {
  auto& any = emulated_block::thread.block->any;
  const auto turn = static_cast<std::size_t>(emulated_block::thread.round++ % 2);
  if (predicate != 0) any[turn] = 1;
  __syncthreads();
  const int result = any[turn];
  __syncthreads();
  if (emulated_block::thread.x == 0) any[turn] = 0;
  return result;
}

namespace trainyard::probe {

inline unsigned long long nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::nanoseconds(now).count());
}
inline void release_flag(std::uint64_t* flag, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(*flag).store(value, std::memory_order_release);
}
template <class Ready>
bool wait_for_flag(std::uint64_t* flag, unsigned long long deadline, Ready ready) {
  while (!ready(std::atomic_ref<std::uint64_t>(*flag).load(std::memory_order_acquire))) {
    if (nanoseconds() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace trainyard::probe

#include "calibrate/probe/ring/ring_kernel.cuh"
#include "sim/base/random.h"
#include "tests/calibrate/collective_reference.h"
#include "tests/support/rooms.h"

namespace trainyard::probe {
namespace {

constexpr std::int64_t kSlot = 12;  // elements
constexpr std::int64_t kMost = 500;

// A rank's memory, every part of it in an allocation of its own, so that sanitizers see its ends.
struct Memory {
  explicit Memory(int ranks)
      : input(kMost / 4 + 1),
        output(kMost / 4 + 1),
        slots(static_cast<std::size_t>(ranks * kRingMostChannels * kRingSlots * kSlot / 4)),
        flags(4, std::vector<std::uint64_t>(
                     static_cast<std::size_t>(ranks * kRingMostChannels * kRingFlagStride))) {}

  RingRank view() {
    RingRank rank;
    rank.input = &input[0].x;
    rank.output = &output[0].x;
    rank.slots = &slots[0].x;
    rank.filled = flags[0].data();
    rank.drained = flags[1].data();
    rank.sent = flags[2].data();
    rank.received = flags[3].data();
    rank.failed = &failed;
    return rank;
  }

  std::vector<float4> input, output, slots;
  std::vector<std::vector<std::uint64_t>> flags;
  unsigned failed = 0;
};

class Machine {
 public:
  explicit Machine(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      memory_.push_back(std::make_unique<Memory>(ranks));
  }

  // Runs all blocks of the ranks, all at once, but for the rank `absent`.
  void run(const RingShape& shape, std::chrono::nanoseconds limit, int absent = -1) {
    RingArguments arguments;
    arguments.shape = shape;
    arguments.time_limit_ns = static_cast<unsigned long long>(limit.count());
    for (std::size_t rank = 0; rank < memory_.size(); ++rank)
      arguments.ranks[rank] = memory_[rank]->view();
    std::vector<std::unique_ptr<emulated_block::Block>> blocks;
    std::vector<std::unique_ptr<RingCounts>> counts;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (int channel = 0; rank != absent && channel < shape.channels; ++channel) {
        blocks.push_back(std::make_unique<emulated_block::Block>());
        counts.push_back(std::make_unique<RingCounts>());
        for (unsigned i = 0; i < emulated_block::kThreads; ++i)
          threads.emplace_back([&arguments, rank, channel, i, block = blocks.back().get(),
                                shared = counts.back().get()] {
            emulated_block::thread = {i, block, 0};
            run_channel<emulated_block::kThreads>(arguments, rank, channel, *shared);
          });
      }
    for (std::thread& thread : threads)
      thread.join();
  }

  void check(const RingShape& shape, SplitMix64& random) {
    CAPTURE(name(shape.kind));
    CAPTURE(shape.ranks);
    CAPTURE(shape.channels);
    CAPTURE(shape.elements);
    test::Buffers<float> input(memory_.size());
    for (std::size_t rank = 0; rank < memory_.size(); ++rank)
      for (std::int64_t i = 0; i < shape.elements; ++i) {
        input[rank].push_back(static_cast<float>(random.below(1000)));
        memory_[rank]->view().input[i] = input[rank].back();
        memory_[rank]->view().output[i] = test::kUntouched;
      }
    run(shape, std::chrono::seconds(20));
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      REQUIRE(memory_[rank]->failed == 0);
      const float* output = memory_[rank]->view().output;
      REQUIRE(std::vector<float>(output, output + shape.elements) ==
              test::expected_output(shape, input, static_cast<int>(rank)));
    }
  }

  int failures() const {
    int count = 0;
    for (const auto& memory : memory_)
      count += memory->failed != 0 ? 1 : 0;
    return count;
  }

 private:
  std::vector<std::unique_ptr<Memory>> memory_;
};

TEST_CASE("The ring kernel does every collective, one after the other, on the same flags") {
  SplitMix64 random(23);
  for (const int ranks : {2, 3, 5}) {
    Machine machine(ranks);
    for (const std::int64_t elements : {1, 37, 240, 499})
      for (int kind = 0; kind < kCollectives; ++kind)
        machine.check({static_cast<Collective>(kind), ranks, 1 + static_cast<int>(random.below(2)),
                       elements, kSlot, 4},
                      random);
  }
}

TEST_CASE("The ring kernel gives up when a rank is absent, and what follows it ends at once") {
  Machine machine(3);
  const RingShape shape{Collective::all_reduce, 3, 1, 100, kSlot, 4};
  machine.run(shape, std::chrono::milliseconds(100), 2);
  CHECK(machine.failures() == 2);
  const auto begin = std::chrono::steady_clock::now();
  machine.run(shape, std::chrono::seconds(60), 2);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

}  // namespace
}  // namespace trainyard::probe
