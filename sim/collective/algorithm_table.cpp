#include <fmt/format.h>

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
  static const std::array table = {
      ring_algorithm(),          double_tree_algorithm(),      halving_doubling_algorithm(),
      pairwise_algorithm(),      hierarchical_algorithm(),     naive_algorithm(),
      binomial_tree_algorithm(), hierarchical_copy_algorithm()};
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

std::vector<std::string_view> algorithm_names(CollectiveKind kind) {
  // Two servers with eight ranks each, or one, satisfy every wish about numbers.
  std::vector<std::string_view> names;
  for (const AlgorithmEntry& entry : algorithms())
    if (entry.supports(kind, {16, 8}) || entry.supports(kind, 8)) names.push_back(entry.name);
  return names;
}

std::string no_such_kind(CollectiveKind kind) {
  return fmt::format("has no {}", name(kind));
}

std::vector<Edge> merged(std::vector<Edge> edges) {
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  });
  std::vector<Edge> result;
  for (const Edge& edge : edges) {
    const bool again =
        !result.empty() && result.back().from == edge.from && result.back().to == edge.to;
    if (again) result.back().share = result.back().share + edge.share;
    if (!again) result.push_back(edge);
  }
  return result;
}

std::vector<Edge> edges_of(std::span<const Message> messages, int shards) {
  std::vector<Edge> edges;
  for (const Message& m : messages)
    edges.push_back({m.from, m.to, Share(1, shards)});
  return merged(std::move(edges));
}

}  // namespace trainyard::collective
