#include "sim/lower/rank_classes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace trainyard::lower {
namespace {

using Colours = std::vector<std::uint32_t>;

// Numbers distinct keys in the order in which they first appear.
class Palette {
 public:
  Palette() = default;
  Palette(const Palette&) = delete;
  Palette& operator=(const Palette&) = delete;

  std::uint32_t colour(const std::vector<std::uint32_t>& key) {
    if (last_ != colours_.end() && last_->first == key)
      return last_->second;  // neighbours are alike
    last_ = colours_.try_emplace(key, size()).first;
    return last_->second;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(colours_.size()); }

 private:
  using Colouring = std::map<std::vector<std::uint32_t>, std::uint32_t>;
  Colouring colours_;
  Colouring::const_iterator last_ = colours_.end();
};

// Appends the multiset of key[begin ..) as sorted (colour, how often) pairs in its place.
void count_tail(std::vector<std::uint32_t>& key, std::size_t begin) {
  const auto tail = key.begin() + static_cast<std::ptrdiff_t>(begin);
  if (std::adjacent_find(tail, key.end(), std::not_equal_to<>()) == key.end()) {
    if (tail == key.end()) return;
    const std::uint32_t only = *tail;
    const auto often = static_cast<std::uint32_t>(key.end() - tail);
    key.resize(begin);
    key.insert(key.end(), {only, often});
    return;
  }
  std::sort(tail, key.end());
  std::vector<std::uint32_t> runs;
  for (std::size_t i = begin; i < key.size();) {
    std::size_t j = i;
    while (j < key.size() && key[j] == key[i])
      ++j;
    runs.insert(runs.end(), {key[i], static_cast<std::uint32_t>(j - i)});
    i = j;
  }
  key.resize(begin);
  key.insert(key.end(), runs.begin(), runs.end());
}

// For every item its incident others, as one array with offsets.
struct Incidence {
  std::vector<std::uint32_t> offset, item;

  // each(i, emit) calls emit(target) for everything that item i touches.
  template <class Each>
  Incidence(std::size_t targets, std::size_t items, Each each) : offset(targets + 1, 0) {
    for (std::size_t i = 0; i < items; ++i)
      each(i, [&](std::uint32_t target) { ++offset[target + 1]; });
    std::partial_sum(offset.begin(), offset.end(), offset.begin());
    item.resize(offset.back());
    std::vector<std::uint32_t> at(offset.begin(), offset.end() - 1);
    for (std::size_t i = 0; i < items; ++i)
      each(i, [&](std::uint32_t target) { item[at[target]++] = static_cast<std::uint32_t>(i); });
  }
};

class Refiner {
 public:
  explicit Refiner(const RankStructure& structure)
      : s_(structure),
        edges_of_rank_(s_.rank_colour.size(), s_.edges.size(),
                       [&](std::size_t e, auto emit) {
                         for (const std::uint32_t rank : s_.members_of(s_.edges[e]))
                           emit(rank);
                       }),
        paths_of_link_(s_.link_colour.size(), s_.paths.size(), [&](std::size_t p, auto emit) {
          for (const std::uint32_t link : s_.paths[p].links)
            emit(link);
        }) {
    classes_.of_rank = s_.rank_colour;
    classes_.of_link = s_.link_colour;
    classes_.of_edge.resize(s_.edges.size());
    classes_.of_path.resize(s_.paths.size());
  }

  RankClasses run() {
    std::uint32_t ranks = 0;  // classes so far
    for (const std::uint32_t colour : s_.rank_colour)
      ranks = std::max(ranks, colour + 1);
    for (;;) {
      colour_paths();
      colour_edges();
      classes_.ranks = colour_ranks();
      classes_.links = colour_links();
      // Colours are only ever split, so equal numbers mean equal partitions.
      const Counts counts = {classes_.ranks, classes_.edges, classes_.paths, classes_.links};
      if (counts == counts_) return std::move(classes_);
      counts_ = counts;
      // Without paths edges depend on nothing but the ranks.
      if (s_.paths.empty() && classes_.ranks == ranks) return std::move(classes_);
      ranks = classes_.ranks;
    }
  }

 private:
  using Counts = std::array<std::uint32_t, 4>;

  void colour_paths() {
    Palette palette;
    for (std::size_t p = 0; p < s_.paths.size(); ++p) {
      const RankStructure::Path& path = s_.paths[p];
      key_ = {classes_.of_rank[path.source], classes_.of_rank[path.destination], path.layout,
              static_cast<std::uint32_t>(path.weight), path.load};
      for (const std::uint32_t link : path.links)
        key_.push_back(classes_.of_link[link]);
      classes_.of_path[p] = palette.colour(key_);
    }
    // A path also tells its edge's kind and company apart; the edge's colour of the last round
    // holds both.
    if (round_++ > 0) {
      Palette finer;
      for (std::size_t e = 0; e < s_.edges.size(); ++e) {
        for (std::uint32_t p = s_.edges[e].first_path, n = s_.edges[e].paths; n > 0; ++p, --n) {
          key_ = {classes_.of_edge[e], classes_.of_path[p]};
          classes_.of_path[p] = finer.colour(key_);
        }
      }
      classes_.paths = finer.size();
      return;
    }
    classes_.paths = palette.size();
  }

  // Neighbours are alike, as a rule, in each member.
  bool is_like_last(std::size_t e) const {
    if (e == 0) return false;
    const RankStructure::Edge &own = s_.edges[e], &last = s_.edges[e - 1];
    if (own.label != last.label || own.ordered != last.ordered || own.paths + last.paths > 0)
      return false;
    return std::ranges::equal(s_.members_of(own), s_.members_of(last),
                              [&](std::uint32_t a, std::uint32_t b) {
                                return classes_.of_rank[a] == classes_.of_rank[b];
                              });
  }

  void colour_edges() {
    Palette palette;
    for (std::size_t e = 0; e < s_.edges.size(); ++e) {
      if (is_like_last(e)) {
        classes_.of_edge[e] = classes_.of_edge[e - 1];
        continue;
      }
      const RankStructure::Edge& edge = s_.edges[e];
      key_.assign({edge.label, edge.ordered ? 1U : 0U});
      for (const std::uint32_t rank : s_.members_of(edge))
        key_.push_back(classes_.of_rank[rank]);
      if (!edge.ordered) count_tail(key_, 2);
      key_.push_back(static_cast<std::uint32_t>(key_.size()));
      const std::size_t paths = key_.size();
      for (std::uint32_t p = edge.first_path; p < edge.first_path + edge.paths; ++p)
        key_.push_back(classes_.of_path[p]);
      count_tail(key_, paths);
      classes_.of_edge[e] = palette.colour(key_);
    }
    classes_.edges = palette.size();
  }

  std::uint32_t colour_ranks() {
    Palette palette;
    Colours finer(classes_.of_rank.size());
    std::vector<std::uint32_t> edges,
        last;  // a rank's, in their order, and those of the one before
    for (std::size_t r = 0; r < finer.size(); ++r) {
      edges.clear();
      const std::uint32_t end = edges_of_rank_.offset[r + 1];
      for (std::uint32_t i = edges_of_rank_.offset[r]; i < end; ++i) {
        const std::uint32_t e = edges_of_rank_.item[i];
        const RankStructure::Edge& edge = s_.edges[e];
        edges.push_back(2 * classes_.of_edge[e] +
                        (edge.ordered && s_.members[edge.first_member] == r ? 1U : 0U));
      }
      if (r > 0 && classes_.of_rank[r] == classes_.of_rank[r - 1] && edges == last) {
        finer[r] = finer[r - 1];
        continue;
      }
      key_.assign(1, classes_.of_rank[r]);
      key_.insert(key_.end(), edges.begin(), edges.end());
      std::sort(key_.begin() + 1, key_.end());
      std::swap(edges, last);
      finer[r] = palette.colour(key_);
    }
    classes_.of_rank = std::move(finer);
    return palette.size();
  }

  std::uint32_t colour_links() {
    Palette palette;
    Colours finer(classes_.of_link.size());
    for (std::size_t l = 0; l < finer.size(); ++l) {
      key_ = {classes_.of_link[l]};
      const std::uint32_t end = paths_of_link_.offset[l + 1];
      for (std::uint32_t i = paths_of_link_.offset[l]; i < end; ++i)
        key_.push_back(classes_.of_path[paths_of_link_.item[i]]);
      count_tail(key_, 1);
      finer[l] = palette.colour(key_);
    }
    classes_.of_link = std::move(finer);
    return palette.size();
  }

  const RankStructure& s_;
  Incidence edges_of_rank_;
  Incidence paths_of_link_;
  RankClasses classes_;
  std::vector<std::uint32_t> key_;
  int round_ = 0;
  Counts counts_{};
};

Colours identity(std::size_t size) {
  Colours colours(size);
  std::iota(colours.begin(), colours.end(), 0U);
  return colours;
}

}  // namespace

RankClasses refine(const RankStructure& structure) {
  return Refiner(structure).run();
}

RankClasses unfolded(const RankStructure& structure) {
  RankClasses classes;
  classes.of_rank = identity(structure.rank_colour.size());
  classes.of_edge = identity(structure.edges.size());
  classes.of_path = identity(structure.paths.size());
  classes.of_link = identity(structure.link_colour.size());
  classes.ranks = static_cast<std::uint32_t>(structure.rank_colour.size());
  classes.edges = static_cast<std::uint32_t>(structure.edges.size());
  classes.paths = static_cast<std::uint32_t>(structure.paths.size());
  classes.links = static_cast<std::uint32_t>(structure.link_colour.size());
  return classes;
}

}  // namespace trainyard::lower
