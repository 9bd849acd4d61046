// Names of ops and of what holds memory, in two parts: where it is, and what it is there. What
// stages do alike they share; where they do it is a short list of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/shared_table.h"

namespace trainyard::engine {

struct Labels {
  static constexpr std::uint32_t kNothing = 0xFFFFFFFF;
  struct Parts {
    std::uint32_t where = kNothing, what = kNothing;  // into Labels::where, Labels::what
    friend bool operator==(const Parts&, const Parts&) = default;
  };

  // That of a label with these parts.
  static std::string name(const Parts& of, const std::vector<std::string>& where,
                          const std::vector<std::string>& what) {
    std::string name = of.where == kNothing ? std::string() : where[of.where];
    return of.what == kNothing ? name : name += what[of.what];
  }

  Labels() = default;
  Labels(std::initializer_list<std::string> names) {
    for (const std::string& name : names)
      push_back(name);
  }

  SharedTable<Parts> parts;  // of each label
  std::vector<std::string> where;
  SharedTable<std::string> what;

  void push_back(std::string name) {
    parts.edit().push_back({kNothing, static_cast<std::uint32_t>(what.size())});
    what.edit().push_back(std::move(name));
  }
  std::size_t size() const { return parts.size(); }
  bool empty() const { return parts.empty(); }
  std::string operator[](std::size_t label) const { return name(parts[label], where, what.rows()); }
  std::vector<std::string> all() const {
    std::vector<std::string> names;
    names.reserve(size());
    for (std::size_t label = 0; label < size(); ++label)
      names.push_back((*this)[label]);
    return names;
  }

  friend bool operator==(const Labels& a, const Labels& b) { return a.all() == b.all(); }
};

}  // namespace trainyard::engine
