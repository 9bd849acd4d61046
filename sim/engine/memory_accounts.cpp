#include "sim/engine/memory_accounts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::engine {

MemoryAccounts::MemoryAccounts(const RunState& state)
    : state_(state),
      accounts_(state.actors.size()),
      peak_ended_(state.streams.size()),
      peak_running_(state.streams.size()) {
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
  if (account.level <= account.peak.peak.count()) return;
  account.peak.peak = Bytes(account.level);
  account.peak.at = since;
  account.peak.by_category = account.by_category;
  const Bytes capacity = state_.machine.actors[ActorId{number}].memory_capacity;
  if (capacity == Bytes{} || account.peak.peak <= capacity) return;
  const ActorState& actor = state_.actors[number];
  for (std::uint32_t s = actor.first_stream; s < actor.first_stream + actor.streams; ++s) {
    peak_ended_[s] = state_.streams[s].ended;
    peak_running_[s] = state_.streams[s].state == HeadState::running;
  }
}

void MemoryAccounts::settle(Duration now) {
  for (std::uint32_t actor = 0; actor < accounts_.size(); ++actor)
    settle(actor, now + Duration(1));
}

MemoryPeak MemoryAccounts::peak(ActorId actor) const {
  MemoryPeak peak = accounts_[index(actor)].peak;
  peak.at_end = Bytes(accounts_[index(actor)].level);
  return peak;
}

std::optional<ActorId> MemoryAccounts::furthest_over() const {
  std::optional<ActorId> furthest;
  Bytes most;
  for (ActorId actor : state_.machine.actors.ids()) {
    const Bytes capacity = state_.machine.actors[actor].memory_capacity;
    const Bytes over = accounts_[index(actor)].peak.peak - capacity;
    if (capacity == Bytes{} || over <= most) continue;
    most = over;
    furthest = actor;
  }
  return furthest;
}

std::vector<MemoryChange> MemoryAccounts::owners_of_peak(ActorId actor) const {
  const ActorState& owner = state_.actors[index(actor)];
  const CompiledProgram& compiled = state_.programs[owner.program];
  const Program& program = *compiled.program;
  std::map<std::pair<std::uint8_t, std::uint32_t>, std::int64_t> live;
  for (const MemoryEffect& effect : program.resident)
    live[{effect.category, effect.owner}] += effect.bytes;
  for (std::uint32_t s = 0; s < owner.streams; ++s) {
    const std::uint32_t ended = peak_ended_[owner.first_stream + s];
    const std::uint32_t begun = ended + (peak_running_[owner.first_stream + s] ? 1 : 0);
    Position position = compiled.seek(s, 0);
    for (std::uint32_t i = 0; i < begun; ++i) {
      const CompiledOp& op = compiled.ops[position.at];
      for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
        const MemoryEffect& effect = program.effects[e];
        if (effect.bytes > 0 || i < ended) live[{effect.category, effect.owner}] += effect.bytes;
      }
      if (++position.at == position.last) position = compiled.seek(s, position.call + 1);
    }
  }
  std::vector<MemoryChange> owners;
  for (const auto& [key, bytes] : live) {
    if (bytes == 0) continue;
    owners.push_back({.at = accounts_[index(actor)].peak.at,
                      .actor = actor,
                      .category = key.first,
                      .owner = key.second,
                      .bytes = bytes});
  }
  std::stable_sort(owners.begin(), owners.end(),
                   [](const MemoryChange& a, const MemoryChange& b) { return a.bytes > b.bytes; });
  return owners;
}

}  // namespace trainyard::engine
