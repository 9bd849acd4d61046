#include <algorithm>
#include <array>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '-' ? '_' : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return plain(x) == plain(y); });
}

}  // namespace

std::span<const AlgorithmEntry> algorithms() {
  static const std::array<AlgorithmEntry, 4> table = {ring_algorithm(), double_tree_algorithm(),
                                                      halving_doubling_algorithm(),
                                                      pairwise_algorithm()};
  return table;
}

const AlgorithmEntry* find_algorithm(std::string_view name) {
  for (const AlgorithmEntry& entry : algorithms())
    if (same_name(entry.name, name)) return &entry;
  return nullptr;
}

int rounds(std::span<const Message> messages) {
  int count = 0;
  for (const Message& message : messages)
    count = std::max(count, message.round + 1);
  return count;
}

}  // namespace trainyard::collective
