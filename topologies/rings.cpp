#include "topologies/rings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/check.h"

namespace trainyard::topologies {
namespace {

constexpr int kGpus = 8;
constexpr int kEdges = kGpus * kGpus;  // edge u * 8 + v; a ring is the set of its edges, one word
constexpr std::size_t kRingsAtMost = 20'000;
// Steps of the search for one number of rings, and of all together. A DGX-1V needs below 20; a mesh
// of our own invention may need more than anyone can wait for.
constexpr int kSteps = 500;
constexpr int kStepsInAll = 3'000;

using Ring = std::uint64_t;
using Capacities = std::array<int, kEdges>;

constexpr int edge(int u, int v) {
  return u * kGpus + v;
}
constexpr Ring bit(int e) {
  return Ring{1} << e;
}

// All rings that use each directed link at most once and at most `relays` relayed hops.
class Enumeration {
 public:
  Enumeration(const Capacities& capacity, int n, int relays)
      : capacity_(capacity), n_(n), relays_(relays) {
    visit(0, 1, 0, 0);
    std::sort(rings_.begin(), rings_.end());
    rings_.erase(std::unique(rings_.begin(), rings_.end()), rings_.end());
  }
  const std::vector<Ring>& rings() const { return rings_; }
  bool complete() const { return rings_.size() < kRingsAtMost; }

 private:
  bool is_free(int u, int v, Ring used) const {
    return capacity_[static_cast<std::size_t>(edge(u, v))] > 0 && !(used & bit(edge(u, v)));
  }
  void visit(int at, unsigned seen, Ring used, int relayed) {
    const bool closing = seen + 1 == 1U << n_;
    for (int next = closing ? 0 : 1; next < (closing ? 1 : n_); ++next) {
      if (next == at || (!closing && (seen >> next & 1U))) continue;
      if (is_free(at, next, used)) step(next, closing, seen, used | bit(edge(at, next)), relayed);
      if (relayed == relays_) continue;
      for (int via = 0; via < n_; ++via)
        if (via != at && via != next && is_free(at, via, used) && is_free(via, next, used))
          step(next, closing, seen, used | bit(edge(at, via)) | bit(edge(via, next)), relayed + 1);
    }
  }
  void step(int next, bool closing, unsigned seen, Ring used, int relayed) {
    if (!complete()) return;
    if (closing)
      rings_.push_back(used);
    else
      visit(next, seen | 1U << next, used, relayed);
  }

  const Capacities& capacity_;
  int n_;
  int relays_;
  std::vector<Ring> rings_;
};

// Finds most of the given rings that fit at once.
class Packing {
 public:
  explicit Packing(int n) : n_(n) {}

  // A packing of a mesh d times as wide is d packings of the mesh; what is left over may hold more.
  // This settles wide uniform meshes, where the search would wander.
  std::vector<Ring> most(const Capacities& capacity, const std::vector<Ring>& rings) {
    const int upper = bound(capacity, n_);
    std::vector<Ring> best;
    for (const int parts : {2, 3}) {
      if (upper <= 1 || static_cast<int>(best.size()) == upper) break;
      Capacities part{}, rest{};
      for (std::size_t e = 0; e < kEdges; ++e) {
        part[e] = capacity[e] / parts;
        rest[e] = capacity[e] % parts;
      }
      if (bound(part, n_) == 0) continue;
      std::vector<Ring> found = most(rest, rings);
      const std::vector<Ring> of_part = most(part, rings);
      for (int times = 0; times < parts; ++times)
        found.insert(found.end(), of_part.begin(), of_part.end());
      if (found.size() > best.size()) best = std::move(found);
    }
    for (int wanted = upper; wanted > static_cast<int>(best.size()); --wanted)
      if (fits(capacity, rings, wanted)) return chosen_;
    return best;
  }
  bool cut_short() const { return cut_short_; }

  // Every set of GPUs is left at least once by every ring.
  static int bound(const Capacities& capacity, int n) {
    int least = 1 << 20;
    for (unsigned set = 1; set + 1 < 1U << n; ++set) {
      int out = 0;
      for (int u = 0; u < n; ++u)
        for (int v = 0; v < n; ++v)
          if ((set >> u & 1U) && !(set >> v & 1U))
            out += capacity[static_cast<std::size_t>(edge(u, v))];
      least = std::min(least, out);
    }
    return least;
  }

 private:
  struct Branch {
    int edge = 0;
    bool must = false;  // every copy of the edge is needed
  };

  bool fits(const Capacities& capacity, const std::vector<Ring>& rings, int wanted) {
    capacity_ = capacity;
    const Ring open = open_edges();
    std::vector<Ring> possible;
    for (const Ring ring : rings)
      if (!(ring & ~open)) possible.push_back(ring);
    chosen_.clear();
    left_ = std::min(kSteps, left_in_all_);
    const int before = left_;
    const bool found = place(possible, wanted);
    if (left_ < 0) cut_short_ = true;
    left_in_all_ -= before - std::max(left_, 0);
    return found;
  }

  bool place(const std::vector<Ring>& rings, int wanted) {
    if (wanted == 0) return true;
    if (--left_ < 0) return false;
    std::array<int, kEdges> count{};
    Capacities useful{};
    for (const Ring ring : rings)
      for (Ring rest = ring; rest != 0; rest &= rest - 1)
        ++count[static_cast<std::size_t>(__builtin_ctzll(rest))];
    for (std::size_t e = 0; e < kEdges; ++e)
      useful[e] = count[e] > 0 ? capacity_[e] : 0;
    if (bound(useful, n_) < wanted) return false;
    const Branch branch = choose(useful, count, wanted);
    return try_rings(rings, branch, wanted);
  }

  // A solution that holds the edge holds some ring through it; a ring once tried is out for good,
  // so no set of rings is met in two orders.
  bool try_rings(const std::vector<Ring>& rings, Branch branch, int wanted) {
    std::vector<Ring> rest;
    for (const Ring ring : rings)
      if (!(ring & bit(branch.edge))) rest.push_back(ring);
    std::vector<Ring> through;
    for (const Ring ring : rings)
      if (ring & bit(branch.edge)) through.push_back(ring);
    for (std::size_t i = 0; i < through.size(); ++i) {
      add(through[i], -1);
      const Ring open = open_edges();
      std::vector<Ring> next;
      for (std::size_t j = i; j < through.size(); ++j)
        if (!(through[j] & ~open)) next.push_back(through[j]);
      for (const Ring ring : rest)
        if (!(ring & ~open)) next.push_back(ring);
      const bool found = place(next, wanted - 1);
      add(through[i], 1);
      if (found) chosen_.push_back(through[i]);
      if (found) return true;
      if (left_ < 0) return false;
    }
    return !branch.must && place(rest, wanted);
  }

  // The edge with the fewest rings at the GPU (leaving or entering it) with the fewest spare links.
  Branch choose(const Capacities& useful, const std::array<int, kEdges>& count, int wanted) const {
    Branch best;
    int best_spare = 1 << 20, best_count = 1 << 20;
    for (int u = 0; u < n_; ++u)
      for (const bool leaving : {true, false}) {
        int spare = -wanted;
        for (int v = 0; v < n_; ++v)
          spare += useful[static_cast<std::size_t>(leaving ? edge(u, v) : edge(v, u))];
        for (int v = 0; v < n_; ++v) {
          const int e = leaving ? edge(u, v) : edge(v, u);
          const int rings = count[static_cast<std::size_t>(e)];
          if (useful[static_cast<std::size_t>(e)] == 0) continue;
          if (spare > best_spare || (spare == best_spare && rings >= best_count)) continue;
          best = {e, spare == 0};
          best_spare = spare;
          best_count = rings;
        }
      }
    return best;
  }

  void add(Ring ring, int amount) {
    for (; ring != 0; ring &= ring - 1)
      capacity_[static_cast<std::size_t>(__builtin_ctzll(ring))] += amount;
  }
  Ring open_edges() const {
    Ring open = 0;
    for (int e = 0; e < kEdges; ++e)
      if (capacity_[static_cast<std::size_t>(e)] > 0) open |= bit(e);
    return open;
  }

  int n_;
  Capacities capacity_{};
  std::vector<Ring> chosen_;  // by the last search that found as many as it wanted
  int left_ = 0;
  int left_in_all_ = kStepsInAll;
  bool cut_short_ = false;
};

Capacities capacities(std::span<const NvlinkPair> mesh, std::span<const int> gpus) {
  Capacities capacity{};
  const auto find = [&](int gpu) {
    return static_cast<int>(std::find(gpus.begin(), gpus.end(), gpu) - gpus.begin());
  };
  const int n = static_cast<int>(gpus.size());
  for (const NvlinkPair& pair : mesh) {
    const int a = find(pair.a), b = find(pair.b);
    if (a == n || b == n) continue;
    capacity[static_cast<std::size_t>(edge(a, b))] += pair.links;
    capacity[static_cast<std::size_t>(edge(b, a))] += pair.links;
  }
  return capacity;
}

std::vector<std::pair<int, int>> edges_of(const std::vector<Ring>& rings,
                                          const std::vector<int>& gpus) {
  std::vector<std::pair<int, int>> edges;
  for (const Ring ring : rings)
    for (Ring rest = ring; rest != 0; rest &= rest - 1) {
      const auto e = static_cast<std::size_t>(__builtin_ctzll(rest));
      edges.emplace_back(gpus[e / kGpus], gpus[e % kGpus]);
    }
  return edges;
}

}  // namespace

RingPacking pack_rings(std::span<const NvlinkPair> mesh, std::span<const int> gpus) {
  const int n = static_cast<int>(gpus.size());
  TRAINYARD_CHECK(2 <= n && n <= kGpus, "rings over {} GPUs", n);
  // In index order, so that the answer does not depend on the order of the group.
  std::vector<int> sorted(gpus.begin(), gpus.end());
  std::sort(sorted.begin(), sorted.end());
  TRAINYARD_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                  "a GPU is in the group twice");
  const Capacities capacity = capacities(mesh, sorted);
  const int upper = Packing::bound(capacity, n);
  if (upper == 0) return {};
  for (int relays = 0; relays <= n; ++relays) {
    const Enumeration all(capacity, n, relays);
    if (all.rings().empty()) continue;
    Packing packing(n);
    std::vector<Ring> packed = packing.most(capacity, all.rings());
    if (packed.empty()) packed.push_back(all.rings().front());
    const int rings = static_cast<int>(packed.size());
    return {rings, relays, edges_of(packed, sorted),
            rings == upper || (all.complete() && !packing.cut_short())};
  }
  return {};
}

}  // namespace trainyard::topologies
