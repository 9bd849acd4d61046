// The labels of a program while it is written, each once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/labels.h"
#include "sim/plan/stage/place_labels.h"

namespace trainyard::plan {

class LabelIndex {
 public:
  // Whether what is there may tell of places; not names of a network's kernels, whatever they have.
  bool names_places = true;

  // The number of a part. A where may tell of a place of the network.
  std::uint32_t where(const std::string& part) { return where_.of(part); }
  std::uint32_t what(const std::string& part) { return what_.of(part); }
  // That of a label of two parts, which is added if it is new.
  std::uint32_t of(std::uint32_t where, std::uint32_t what) {
    const std::size_t row = where + 1U;  // 0: nothing
    if (row >= labels_.size()) labels_.resize(row + 1);
    std::vector<Known>& known = labels_[row];
    if (known.empty()) known.reserve(labels_[std::exchange(last_row_, row)].size());
    const auto at = std::lower_bound(known.begin(), known.end(), what,
                                     [](const Known& a, std::uint32_t b) { return a.what < b; });
    if (at != known.end() && at->what == what) return at->label;
    const auto label = static_cast<std::uint32_t>(parts_.size());
    known.insert(at, {what, label});
    parts_.push_back({where, what});
    return label;
  }
  // The same of a label that is one part.
  std::uint32_t of(const std::string& label) {
    return tells_of_place(label) ? of(where(label), engine::Labels::kNothing)
                                 : of(engine::Labels::kNothing, what(label));
  }
  // The same of one that says what is at a place; what may tell of others.
  std::uint32_t of(std::uint32_t at, const std::string& what_there) {
    return names_places && tells_of_place(what_there)
               ? of(where(where_.names[at] + what_there), engine::Labels::kNothing)
               : of(at, what(what_there));
  }
  const engine::Labels::Parts& parts(std::uint32_t label) const { return parts_[label]; }
  std::string name(std::uint32_t label) const {
    return engine::Labels::name(parts_[label], where_.names, what_.names);
  }

  engine::Labels finish() {
    engine::Labels labels;
    labels.parts = std::move(parts_);
    labels.where = std::move(where_.names);
    labels.what = std::move(what_.names);
    return labels;
  }

 private:
  // By hash: names begin alike, so that comparing them takes long. What is asked for is often what
  // was asked for last.
  struct Names {
    std::vector<std::string> names;
    // By the last bits of their hashes, each in the first place that was free from there on; of a
    // power of two, at most half are taken.
    struct Place {
      std::size_t hash = 0;
      std::uint32_t name = engine::Labels::kNothing;
    };
    std::vector<Place> places = std::vector<Place>(64);
    std::uint32_t last = 0;

    std::uint32_t of(const std::string& name) {
      if (last < names.size() && names[last] == name) return last;
      return last = find(name);
    }
    std::uint32_t find(const std::string& name) {
      const std::size_t hash = std::hash<std::string>()(name);
      Place& place = find(hash, name);
      if (place.name != engine::Labels::kNothing) return place.name;
      const auto added = static_cast<std::uint32_t>(names.size());
      place = {hash, added};
      names.push_back(name);
      if (2 * names.size() > places.size()) grow();
      return added;
    }

   private:
    Place& find(std::size_t hash, const std::string& name) {
      for (std::size_t at = hash;; ++at) {
        Place& place = places[at % places.size()];
        if (place.name == engine::Labels::kNothing) return place;
        if (place.hash == hash && names[place.name] == name) return place;
      }
    }
    void grow() {
      std::vector<Place> before(2 * places.size());
      std::swap(before, places);
      for (const Place& place : before)
        if (place.name != engine::Labels::kNothing) find(place.hash, names[place.name]) = place;
    }
  };

  Names where_, what_;
  struct Known {
    std::uint32_t what = 0, label = 0;
  };

  std::vector<engine::Labels::Parts> parts_;  // by label
  std::vector<std::vector<Known>> labels_;    // by where + 1, ascending
  std::size_t last_row_ = 0;                  // the newest: the next is as long, as a rule
};

}  // namespace trainyard::plan
