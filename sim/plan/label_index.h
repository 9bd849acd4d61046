// Where labels stand in a program's table, which has each once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trainyard::plan {

// By hash: labels begin alike, so that comparing them takes long.
class LabelIndex {
 public:
  // That of a label, which is added if it is new. `labels`: always the same table.
  std::uint32_t of(const std::string& label, std::vector<std::string>& labels) {
    const std::size_t hash = std::hash<std::string>()(label);
    auto [known, end] = places_.equal_range(hash);
    for (; known != end; ++known)
      if (labels[known->second] == label) return known->second;
    const auto added = static_cast<std::uint32_t>(labels.size());
    places_.emplace_hint(end, hash, added);
    labels.push_back(label);
    return added;
  }

 private:
  std::multimap<std::size_t, std::uint32_t> places_;
};

}  // namespace trainyard::plan
