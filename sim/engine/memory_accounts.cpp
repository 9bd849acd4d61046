#include "sim/engine/memory_accounts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::engine {

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

// Before the first change of an instant: what was held since the previous one is final.
void MemoryAccounts::settle(std::uint32_t number, Duration now) {
  Account& account = accounts_[number];
  if (now == account.changed) return;
  const Duration since = std::exchange(account.changed, now);
  const std::uint32_t pools = state_.programs[state_.actors[number].program].program->pools;
  settle_pools(account, pools);
  if (account.level <= account.peak.peak.count()) return;
  account.peak.peak = Bytes(account.level);
  account.peak.at = since;
  account.peak.by_category = account.by_category;
  const Bytes capacity = state_.machine.actors[ActorId{number}].memory_capacity;
  // Pools may turn out to be over it at another instant.
  const bool over = capacity > Bytes{} && (account.peak.peak > capacity || pools != 0);
  if (!over && !recorder_.tells_of(number)) return;
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
