#include "sim/engine/memory_accounts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::engine {
namespace {

// What is held outside of the pools.
std::int64_t outside_of(std::uint32_t pools, std::int64_t level,
                        const std::array<std::int64_t, kMaxCategories>& by_category) {
  for (std::uint32_t c = 0; c < kMaxCategories; ++c)
    if ((pools >> c & 1U) != 0) level -= by_category[c];
  return level;
}

}  // namespace

void MemoryCourse::change(const CompiledOp& op, bool gives, Duration at) {
  if (at != changed_) settle();
  changed_ = at;
  changes_ = true;
  for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
    const MemoryEffect& effect = program_->effects[e];
    if ((effect.bytes < 0) != gives) continue;
    TRAINYARD_CHECK(effect.category < kMaxCategories, "memory category {}", effect.category);
    level_ = checked_sum(level_, effect.bytes);
    by_category_[effect.category] += effect.bytes;
  }
}

void MemoryCourse::settle() {
  const std::int64_t outside = outside_of(program_->pools, level_, by_category_);
  if (!settled_ || level_ > most_) {
    most_ = level_;
    most_at_ = changed_;
    at_most_ = by_category_;
  }
  most_outside_ = settled_ ? std::max(most_outside_, outside) : outside;
  for (std::size_t c = 0; c < kMaxCategories; ++c)
    most_of_[c] = settled_ ? std::max(most_of_[c], by_category_[c]) : by_category_[c];
  settled_ = true;
}

void MemoryCourse::stream_at_most(std::uint32_t stream, std::uint32_t ended, bool runs) {
  lanes_.push_back({stream, ended, runs});
}

MemoryAccounts::MemoryAccounts(const RunState& state, const Recorder& recorder)
    : state_(state), recorder_(recorder), accounts_(state.actors.size()) {
  for (std::size_t actor = 0; actor < accounts_.size(); ++actor) {
    Account& account = accounts_[actor];
    for (const MemoryEffect& effect :
         state.programs[state.actors[actor].program].program->resident) {
      TRAINYARD_CHECK(effect.category < kMaxCategories, "memory category {}", effect.category);
      account.level = checked_sum(account.level, effect.bytes);
      account.by_category[effect.category] += effect.bytes;
    }
    account.peak.peak = account.peak.resident = Bytes(account.level);
    account.peak.by_category = account.by_category;
    settle_pools(account, state.programs[state.actors[actor].program].program->pools);
    if (recorder.tells_of(static_cast<std::uint32_t>(actor)))
      account.peak.ended.resize(state.actors[actor].streams);
  }
}

void MemoryAccounts::begin(const StreamState& stream, Duration now, Recorder& recorder) {
  change(stream, +1, now, recorder);
}

void MemoryAccounts::end(const StreamState& stream, Duration now, Recorder& recorder) {
  change(stream, -1, now, recorder);
}

void MemoryAccounts::change(const StreamState& stream, int sign, Duration now, Recorder& recorder) {
  settle(stream.actor, now);
  Account& account = accounts_[stream.actor];
  const Program& program = *state_.program(stream).program;
  const CompiledOp& op = state_.op(stream);
  for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
    const MemoryEffect& effect = program.effects[e];
    if ((effect.bytes > 0) != (sign > 0)) continue;
    TRAINYARD_CHECK(effect.category < kMaxCategories, "memory category {}", effect.category);
    account.level = checked_sum(account.level, effect.bytes);
    account.by_category[effect.category] += effect.bytes;
    recorder.memory(stream, effect, now);
  }
}

void MemoryAccounts::pass(std::uint32_t actor, const MemoryCourse& course, Duration begin) {
  if (!course.changes_) return;
  settle(actor, begin);
  if (course.settled_) reach_most(actor, course, begin);
  Account& account = accounts_[actor];
  account.level = checked_sum(account.level, course.level_);
  for (std::size_t c = 0; c < kMaxCategories; ++c)
    account.by_category[c] += course.by_category_[c];
  account.changed = later(begin, course.changed_);
}

void MemoryAccounts::reach_most(std::uint32_t number, const MemoryCourse& course, Duration begin) {
  Account& account = accounts_[number];
  const std::uint32_t pools = course.program_->pools;
  for (std::uint32_t c = 0; c < kMaxCategories; ++c)
    if ((pools >> c & 1U) != 0)
      account.most[c] = std::max(account.most[c], account.by_category[c] + course.most_of_[c]);
  if (pools != 0)
    account.outside =
        std::max(account.outside,
                 outside_of(pools, account.level, account.by_category) + course.most_outside_);
  const std::int64_t level = checked_sum(account.level, course.most_);
  if (level <= account.peak.peak.count()) return;
  account.peak.peak = Bytes(level);
  account.peak.at = later(begin, course.most_at_);
  for (std::size_t c = 0; c < kMaxCategories; ++c)
    account.peak.by_category[c] = account.by_category[c] + course.at_most_[c];
  if (!keeps_streams(number, account)) return;
  keep_streams(number, account);
  for (const MemoryCourse::Lane& lane : course.lanes_) {
    account.peak.ended[lane.stream] += lane.ended;
    account.peak.running &= ~(1U << lane.stream);
    if (lane.runs) account.peak.running |= 1U << lane.stream;
  }
}

// Before the first change of an instant: what was held since the previous one is final.
void MemoryAccounts::settle(std::uint32_t number, Duration now) {
  Account& account = accounts_[number];
  if (now == account.changed) return;
  const Duration since = std::exchange(account.changed, now);
  settle_pools(account, state_.programs[state_.actors[number].program].program->pools);
  if (account.level <= account.peak.peak.count()) return;
  account.peak.peak = Bytes(account.level);
  account.peak.at = since;
  account.peak.by_category = account.by_category;
  if (keeps_streams(number, account)) keep_streams(number, account);
}

// Whether what is held at a new peak is asked for.
bool MemoryAccounts::keeps_streams(std::uint32_t number, const Account& account) const {
  if (recorder_.tells_of(number)) return true;
  const Bytes capacity = state_.machine.actors[ActorId{number}].memory_capacity;
  // Pools may turn out to be over it at another instant.
  const std::uint32_t pools = state_.programs[state_.actors[number].program].program->pools;
  return capacity > Bytes{} && (account.peak.peak > capacity || pools != 0);
}

// As they stand.
void MemoryAccounts::keep_streams(std::uint32_t number, Account& account) const {
  const ActorState& actor = state_.actors[number];
  account.peak.ended.resize(actor.streams);
  account.peak.running = 0;
  for (std::uint32_t s = 0; s < actor.streams; ++s) {
    const StreamState& stream = state_.streams[actor.first_stream + s];
    account.peak.ended[s] = stream.ended;
    if (stream.state == HeadState::running) account.peak.running |= 1U << s;
  }
}

void MemoryAccounts::settle_pools(Account& account, std::uint32_t pools) {
  if (pools == 0) return;
  std::int64_t outside = account.level;
  for (std::uint32_t c = 0; c < kMaxCategories; ++c) {
    if ((pools >> c & 1U) == 0) continue;
    account.most[c] = std::max(account.most[c], account.by_category[c]);
    outside -= account.by_category[c];
  }
  account.outside = std::max(account.outside, outside);
}

void MemoryAccounts::settle(Duration now) {
  for (std::uint32_t actor = 0; actor < accounts_.size(); ++actor)
    settle(actor, now + Duration(1));
}

void MemoryAccounts::walk(StateWalk& walk) {
  for (std::uint32_t actor = 0; actor < accounts_.size(); ++actor)
    this->walk(walk, actor);
}

// A peak that grows with what is held is later by as much, too, and at the same place of the
// period.
void MemoryAccounts::walk(StateWalk& walk, std::uint32_t number) {
  Account& account = accounts_[number];
  const ActorState& actor = state_.actors[number];
  const std::uint32_t pools = state_.programs[actor.program].program->pools;
  const Account before = account;
  walk.moment(account.changed);
  walk.sum(account.level);
  for (std::int64_t& bytes : account.by_category)
    walk.sum(bytes);
  // From there on the ops that had ended would be kept with it.
  const std::int64_t capacity = state_.machine.actors[ActorId{number}].memory_capacity.count();
  const bool is_kept = recorder_.tells_of(number) || capacity == 0 || pools != 0;
  const std::int64_t peak = account.peak.peak.count();
  const std::int64_t limit =
      is_kept || peak > capacity ? std::numeric_limits<std::int64_t>::max() : capacity;
  if (const std::int64_t more = walk.most(account.level, peak, limit); more > 0) {
    account.peak.peak = account.peak.peak + Bytes(more);
    account.peak.at = later(account.peak.at, walk.shift());
    for (std::size_t c = 0; c < kMaxCategories; ++c)
      account.peak.by_category[c] += account.by_category[c] - before.by_category[c];
    for (std::uint32_t s = 0; s < account.peak.ended.size(); ++s)
      account.peak.ended[s] += walk.more_ended(actor.first_stream + s);
  }
  if (pools == 0) return;
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  std::int64_t outside = account.level;
  for (std::uint32_t c = 0; c < kMaxCategories; ++c) {
    if ((pools >> c & 1U) == 0) continue;
    outside -= account.by_category[c];
    account.most[c] += walk.most(account.by_category[c], account.most[c], kNoLimit);
  }
  account.outside += walk.most(outside, account.outside, kNoLimit);
}

MemoryPeak MemoryAccounts::peak(ActorId actor) const {
  MemoryPeak peak = accounts_[index(actor)].peak;
  const Account& account = accounts_[index(actor)];
  peak.at_end = Bytes(account.level);
  const std::int64_t pooled =
      std::accumulate(account.most.begin(), account.most.end(), account.outside);
  peak.pooled = std::max(peak.peak, Bytes(pooled));
  return peak;
}

std::optional<ActorId> MemoryAccounts::furthest_over() const {
  std::optional<ActorId> furthest;
  Bytes most;
  for (ActorId actor : state_.machine.actors.ids()) {
    const Bytes capacity = state_.machine.actors[actor].memory_capacity;
    const Bytes over = peak(actor).pooled - capacity;
    if (capacity == Bytes{} || over <= most) continue;
    most = over;
    furthest = actor;
  }
  return furthest;
}

}  // namespace trainyard::engine
