#include "sim/search/prospect.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainyard::search {

using json::Value;
using plan::kMemoryKinds;

namespace {

double sum(const std::array<double, 3>& parts) {
  return parts[0] + parts[1] + parts[2];
}

}  // namespace

// Fragmentation is a share of what is allocated, and all that is wanted has to fit; what else comes
// to it is as it was.
void Guesses::tell_peak(Guess& guess) const {
  constexpr auto kFragmentation = static_cast<std::size_t>(plan::MemoryKind::fragmentation);
  double before = 0, after = 0, rest = 0;
  for (std::size_t c = 0; c < kMemoryKinds; ++c) {
    const auto bytes = static_cast<double>(report_.memory.by_category[c].count());
    if (c < kFragmentation) {
      before += bytes;
      after += guess.memory[c] * bytes + guess.added[c];
    } else if (c > kFragmentation) {
      rest += bytes;
    }
  }
  const simulate::MemoryReport& memory = report_.memory;
  const auto lost = static_cast<double>(
      (memory.by_category[kFragmentation] + (memory.wanted - memory.peak)).count());
  guess.peak = after + (before > 0 ? after / before * lost : 0) + rest;
}

Guess Guesses::of(const simulate::JobSketch& changed) const {
  Guess guess;
  for (std::size_t c = 0; c < kMemoryKinds; ++c) {
    const bool has_some = job_.bytes[c] > 0;
    guess.memory[c] = has_some ? changed.bytes[c] / job_.bytes[c] : 1;
    guess.added[c] = has_some ? 0 : changed.bytes[c];
  }
  const double all = sum(job_.seconds);
  for (std::size_t part = 0; part < guess.parts.size(); ++part)
    guess.parts[part] = changed.seconds[part] / all;
  guess.time = sum(guess.parts);
  tell_peak(guess);
  return guess;
}

Guess Guesses::both(const Guess& one, const Guess& other) const {
  Guess guess;
  for (std::size_t c = 0; c < kMemoryKinds; ++c) {
    guess.memory[c] = one.memory[c] * other.memory[c];
    guess.added[c] = std::min(one.added[c], other.added[c]);
  }
  const double all = sum(job_.seconds);
  for (std::size_t part = 0; part < guess.parts.size(); ++part) {
    const double own = job_.seconds[part] / all;
    guess.parts[part] = own > 0 ? one.parts[part] * other.parts[part] / own
                                : std::max(one.parts[part], other.parts[part]);
  }
  guess.time = sum(guess.parts);
  tell_peak(guess);
  return guess;
}

void set(Edits& edits, const Edit& added) {
  const auto same = std::find_if(edits.begin(), edits.end(),
                                 [&](const Edit& edit) { return edit.pointer == added.pointer; });
  if (same == edits.end())
    edits.push_back(added);
  else
    same->value = added.value;
}

bool same_changes(const Edits& a, const Edits& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const Edit& edit) {
           return std::any_of(b.begin(), b.end(), [&](const Edit& other) {
             return edit.pointer == other.pointer && same(edit.value, other.value);
           });
         });
}

std::string name_of(std::size_t knob, const Edits& edits) {
  std::string name = fmt::format("{}", knob);
  for (const Edit& edit : edits)
    if (!edit.what.empty())
      name += fmt::format(" {}={}", edit.pointer, json::to_text(edit.value, -1));
  return name;
}

std::uint64_t entries(const Value& value) {
  std::uint64_t count = 1;
  for (const Value& item : value.items)
    count += entries(item);
  for (const json::Member& member : value.members)
    count += entries(member.value);
  return count;
}

}  // namespace trainyard::search
