#include "sim/simulate/memory/memory_floor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <limits>

#include "sim/simulate/device_memory.h"
#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

using engine::Block;
using engine::Call;
using engine::MemoryEffect;
using engine::Op;
using engine::OpKind;
using engine::Program;

namespace {

constexpr std::uint32_t kCompute = 0;

struct Effects {
  std::int64_t taken = 0, given_back = 0;
  std::int64_t net() const { return taken - given_back; }
};

Effects effects_of(const Program& program, const Op& op) {
  Effects sum;
  for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
    const std::int64_t bytes = program.effects[e].bytes;
    (bytes > 0 ? sum.taken : sum.given_back) += bytes > 0 ? bytes : -bytes;
  }
  return sum;
}

// An op without kernels ends when it begins: what is held is that of an instant.
bool lasts(const Program& program, const Op& op) {
  return op.kind == OpKind::compute && program.segments[op.subject].kernels > 0;
}

std::int64_t resident(const Program& program) {
  std::int64_t bytes = 0;
  for (const MemoryEffect& effect : program.resident)
    bytes += effect.bytes;
  return bytes;
}

// Streams but the compute stream whose ops move memory: bit s for stream s.
std::uint32_t streams_that_move(const Program& program) {
  std::uint32_t streams = 0;
  for (const Block& block : program.blocks)
    for (const Op& op : block.ops)
      if (op.effects > 0) streams |= 1U << op.stream;
  return streams & ~(1U << kCompute);
}

// What a block does to what is held when it is called.
struct BlockMemory {
  std::int64_t net = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::min();  // while a kernel runs
};

// Where other streams do all as soon as it is enqueued, which they may: no less than the least. Of
// a program in which only the compute stream moves memory it is the least.
std::int64_t most_in_order(const Program& program) {
  std::vector<BlockMemory> blocks;
  for (const Block& block : program.blocks) {
    BlockMemory& memory = blocks.emplace_back();
    for (const Op& op : block.ops) {
      const Effects effects = effects_of(program, op);
      if (op.stream == kCompute && lasts(program, op))
        memory.most = std::max(memory.most, memory.net + effects.taken);
      memory.net += effects.net();
    }
  }
  std::int64_t level = resident(program);
  std::int64_t most = level;
  for (const Call& call : program.calls) {
    const BlockMemory& block = blocks[call.block];
    if (block.most != std::numeric_limits<std::int64_t>::min())
      most = std::max(most, level + block.most);
    level += block.net;
  }
  return most;
}

// Of a program in which other streams do, too. Counts of ops say how far a stream must have come.
class Ledger {
 public:
  explicit Ledger(const Program& program) : program_(program), level_(resident(program)) {
    for (std::uint32_t left = streams_that_move(program); left != 0; left &= left - 1)
      lane_of_[static_cast<std::size_t>(std::countr_zero(left))] = lanes_++;
    moved_.resize(lanes_);
    for (std::vector<std::uint32_t>& ended : must_have_ended_)
      ended.assign(lanes_, 0);
  }

  std::int64_t most() {
    std::int64_t most = level_;
    for (const Call& call : program_.calls)
      for (const Op& op : program_.blocks[call.block].ops)
        enqueue(op);
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      add_least(lane);
    for (const Moment& moment : moments_)
      most = std::max(most, moment.held);
    return most;
  }

 private:
  static constexpr std::size_t kNone = 64;

  // An op of the compute stream while it runs.
  struct Moment {
    std::uint32_t computed = 0;  // ops of the compute stream that have ended
    std::int64_t held = 0;
  };
  // An op of another stream that moves memory.
  struct Moved {
    std::uint32_t after = 0;  // so many ops of the compute stream
    std::int64_t sum = 0;     // of its stream, when it has ended
  };

  void enqueue(const Op& op) {
    std::vector<std::uint32_t>& ended = must_have_ended_[op.stream];
    std::uint32_t after = op.stream == kCompute ? 0 : after_[op.stream];
    for (std::uint32_t left = op.waits; left != 0; left &= left - 1) {
      const auto stream = static_cast<std::size_t>(std::countr_zero(left));
      for (std::size_t lane = 0; lane < lanes_; ++lane)
        ended[lane] = std::max(ended[lane], must_have_ended_[stream][lane]);
      after = std::max(after, stream == kCompute ? computed_ : after_[stream]);
    }
    const Effects effects = op.effects > 0 ? effects_of(program_, op) : Effects();
    if (op.stream == kCompute) {
      if (lasts(program_, op)) add_moment(level_ + effects.taken, ended);
      level_ += effects.net();
      ++computed_;
      return;
    }
    after_[op.stream] = after;
    if (op.effects == 0) return;
    const std::size_t lane = lane_of_[op.stream];
    std::vector<Moved>& moved = moved_[lane];
    moved.push_back({after, (moved.empty() ? 0 : moved.back().sum) + effects.net()});
    ended[lane] = static_cast<std::uint32_t>(moved.size());
  }

  // A moment is nothing new behind one that held as much when as many ops must have ended: more of
  // them may have, which leave no more.
  void add_moment(std::int64_t held, const std::vector<std::uint32_t>& ended) {
    const bool as_before =
        !moments_.empty() &&
        std::equal(ended.begin(), ended.end(), known_.end() - static_cast<std::ptrdiff_t>(lanes_));
    if (as_before && moments_.back().held >= held) return;
    moments_.push_back({computed_, held});
    known_.insert(known_.end(), ended.begin(), ended.end());
  }

  // To every moment the least that the ops of a stream leave: of those that must have ended none is
  // missing, and none is there that comes after the moment. Both ends go up with the moments.
  void add_least(std::size_t lane) {
    const std::vector<Moved>& moved = moved_[lane];
    const auto sum = [&](std::size_t ended) { return ended == 0 ? 0 : moved[ended - 1].sum; };
    std::deque<std::size_t> least;  // ended ops, sums ascending
    std::size_t next = 0;
    for (std::size_t m = 0; m < moments_.size(); ++m) {
      for (; next <= moved.size() && (next == 0 || moved[next - 1].after <= moments_[m].computed);
           ++next) {
        while (!least.empty() && sum(least.back()) >= sum(next))
          least.pop_back();
        least.push_back(next);
      }
      while (least.front() < known_[m * lanes_ + lane])
        least.pop_front();
      moments_[m].held += sum(least.front());
    }
  }

  const Program& program_;
  std::size_t lanes_ = 0;  // streams but the compute stream that move memory
  std::array<std::size_t, engine::kMaxStreams> lane_of_{};
  // By stream, of its tail: ops of each lane that have ended when it ends, and ops of the compute
  // stream that have when it begins.
  std::array<std::vector<std::uint32_t>, engine::kMaxStreams> must_have_ended_;
  std::array<std::uint32_t, engine::kMaxStreams> after_{};
  std::uint32_t computed_ = 0;
  std::int64_t level_;  // of the compute stream
  std::vector<Moment> moments_;
  std::vector<std::uint32_t> known_;       // [moment * lanes_ + lane]: ops that must have ended
  std::vector<std::vector<Moved>> moved_;  // by lane
};

// Of the first player of each role that has one.
struct RoleMemory {
  std::size_t role = 0;
  bool on_gpu = false;
  DeviceMemory device;
};

std::vector<RoleMemory> memory_of_roles(const Job& job, const plan::StepPlan& plan) {
  const plan::Cast& cast = plan.cast;
  std::vector<int> channels;
  for (std::size_t kind = 0; kind < job.prices.size(); ++kind) {
    const cost::Profile* profile = job.profile_of(static_cast<int>(kind));
    channels.push_back(profile != nullptr ? profile->collective_channels : 0);
  }
  const lower::DevicePlacement placement = placement_of(job, cast);
  std::vector<lower::RankClass> first;
  std::vector<bool> found(cast.roles.size(), false);
  for (std::size_t player = 0; player < cast.players(); ++player) {
    const std::uint32_t role = cast.role_of[player];
    if (found[role]) continue;
    found[role] = true;
    const lower::Device& at = placement[player];
    first.push_back({.representative = static_cast<int>(player),
                     .role = static_cast<int>(role),
                     .gpu_kind = at.is_host() ? 0 : gpu_kind_of(job.cluster, at.server, at.gpu)});
  }
  const std::vector<DeviceMemory> devices =
      device_memory(cast, placement, first, job.cluster, job.recipe.memory, channels);
  std::vector<RoleMemory> roles;
  for (std::size_t i = 0; i < first.size(); ++i)
    roles.push_back({static_cast<std::size_t>(first[i].role),
                     !placement[static_cast<std::size_t>(first[i].representative)].is_host(),
                     devices[i]});
  return roles;
}

MemoryFloor floor_of(const RoleMemory& role, Bytes held) {
  if (!role.on_gpu) return {.held = held, .on_device = Bytes(0), .capacity = Bytes(0)};
  return {.held = held, .on_device = role.device.required(held), .capacity = role.device.capacity};
}

}  // namespace

Bytes least_held(const Program& program) {
  if (streams_that_move(program) == 0) return Bytes(most_in_order(program));
  return Bytes(Ledger(program).most());
}

std::vector<MemoryFloor> memory_floors(const Job& job, const plan::StepPlan& plan) {
  std::vector<MemoryFloor> floors(plan.cast.roles.size());
  for (const RoleMemory& role : memory_of_roles(job, plan))
    floors[role.role] = floor_of(role, least_held(plan.cast.roles[role.role].program));
  return floors;
}

bool may_fit(const Job& job, const plan::StepPlan& plan) {
  const std::vector<RoleMemory> roles = memory_of_roles(job, plan);
  return std::all_of(roles.begin(), roles.end(), [&](const RoleMemory& role) {
    const Program& program = plan.cast.roles[role.role].program;
    return floor_of(role, Bytes(most_in_order(program))).may_fit() ||
           floor_of(role, least_held(program)).may_fit();
  });
}

MemoryFloor memory_floor(const Job& job) {
  Step step;
  StepMaker(job, {}).plan(step);
  const std::vector<MemoryFloor> floors = memory_floors(job, step.plan);
  const auto is_less = [](const MemoryFloor& a, const MemoryFloor& b) {
    const bool limited = a.capacity > Bytes(0), other = b.capacity > Bytes(0);
    if (limited != other) return other;
    return a.on_device - a.capacity < b.on_device - b.capacity;
  };
  return *std::max_element(floors.begin(), floors.end(), is_less);
}

}  // namespace trainyard::simulate
