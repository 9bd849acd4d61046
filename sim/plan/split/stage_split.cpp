#include "sim/plan/split/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using models::NetworkWork;
using recipe::LayerSplit;
using schedule::PipelineShape;

namespace {

bool is_divisible(const NetworkWork& work, int place) {
  return work.divisible[static_cast<std::size_t>(place)];
}

// counts[k] divisible places for virtual stage k, and before them the others that no earlier one
// has taken.
std::vector<ChainRange> cut_by_counts(const NetworkWork& work, const std::vector<int>& counts) {
  std::vector<ChainRange> ranges;
  int place = 0;
  const int places = static_cast<int>(work.chain.size());
  const auto first = std::find(work.divisible.begin(), work.divisible.end(), true);
  const int first_divisible = static_cast<int>(first - work.divisible.begin());
  for (std::size_t k = 0; k < counts.size(); ++k) {
    ChainRange range{place, place};
    for (int taken = 0; place < places; ++place) {
      if (taken == counts[k] && place >= first_divisible) break;
      taken += is_divisible(work, place) ? 1 : 0;
    }
    range.last = k + 1 == counts.size() ? places : place;
    place = range.last;
    ranges.push_back(range);
  }
  return ranges;
}

// Cuts a chain by work, FLOPs or what it is said to be, and memory.
class Balance {
 public:
  Balance(const NetworkWork& work, const PipelineShape& shape, const recipe::TrainingRecipe& recipe,
          const recipe::ParallelPlan& plan, std::span<const StageGpus> gpus)
      : work_(work),
        unlike_(gpus.size() > 1),
        loads_(work, shape, recipe, plan),
        held_(most_held(shape, plan)),
        layers_(static_cast<int>(std::count(work.divisible.begin(), work.divisible.end(), true))) {
    for (int part = 0; part < parts(); ++part)
      gpus_.push_back(worst_gpus(part, shape, gpus));
    if (plan.pipeline.layer_split == LayerSplit::by_time) return;
    for (StageGpus& own : gpus_)
      own.times.clear();
  }

  // `memory_first`: the fullest part decides, and the longest one among such cuts.
  std::vector<ChainRange> cut(bool memory_first) const {
    Limits limits;
    const auto limit_work = [&] {
      if (unlike_) {
        limits.work = least_of_unlike(limits, [](const Load& load, int) { return load.work; });
        return;
      }
      limits.work = least(
          [&](double work) {
            return fill({work, limits.memory});
          },
          [](const Reach& reach) { return reach.work; },
          [](const Reach& reach) { return reach.next.work; });
    };
    const auto limit_memory = [&] {
      if (unlike_) {
        limits.memory = least_of_unlike(
            limits, [this](const Load& load, int part) { return memory(load, part); });
        return;
      }
      limits.memory = least(
          [&](double memory) {
            return fill({limits.work, memory});
          },
          [](const Reach& reach) { return reach.memory; },
          [](const Reach& reach) { return reach.next.memory; });
    };
    if (memory_first) limit_memory();
    limit_work();
    if (!memory_first) limit_memory();
    return even(limits);
  }

 private:
  struct Limits {
    double work = std::numeric_limits<double>::infinity();
    double memory = std::numeric_limits<double>::infinity();
  };
  // Of a cut within limits: what its largest parts come to, and the least by which one of them
  // would be longer.
  struct Reach {
    bool covers = false;
    double work = 0, memory = 0;
    Limits next;
  };

  int parts() const { return static_cast<int>(held_.size()); }

  // Of the stages that hold a part, one for each copy of the network.
  static StageGpus worst_gpus(int part, const PipelineShape& shape,
                              std::span<const StageGpus> gpus) {
    if (gpus.empty()) return {};
    StageGpus worst;
    for (int direction = 0; direction < directions(shape); ++direction) {
      const schedule::Seat seat = schedule::seat(shape, part, static_cast<std::uint8_t>(direction));
      const StageGpus& own = gpus[gpus.size() == 1 ? 0 : static_cast<std::size_t>(seat.stage)];
      if (direction == 0) worst = own;
      worst.memory = std::min(worst.memory, own.memory);
      for (std::size_t kind = 0; kind < own.times.size(); ++kind)
        worst.times[kind] = std::max(worst.times[kind], own.times[kind]);
    }
    return worst;
  }

  double work_at(int place, int part) const { return loads_.work(place, gpus_of(part)); }
  const StageGpus& gpus_of(int part) const { return gpus_[static_cast<std::size_t>(part)]; }

  double memory(const Load& load, int part) const {
    const int held = held_[static_cast<std::size_t>(part)];
    return static_cast<double>(loads_.memory(load, held).count()) * share_of_memory(part);
  }

  // What a byte on a part counts: as many as the memory of the first part is of its own.
  double share_of_memory(int part) const {
    const Bytes first = gpus_.front().memory, own = gpus_[static_cast<std::size_t>(part)].memory;
    if (first == own) return 1;
    return static_cast<double>(first.count()) / static_cast<double>(own.count());
  }

  // Hands on each end that part `part` may have, from `first` on with `before` divisible places
  // behind it, until `take` returns false. `next`: lowered to what it would need for another place.
  template <class Take>
  void each_end(int part, int first, int before, const Limits& limits, Take take,
                Limits* next = nullptr) const {
    Load load;
    const bool is_last = part + 1 == parts();
    const auto places = static_cast<int>(work_.chain.size());
    for (int place = first; place < places; ++place) {
      loads_.add(load, place, gpus_of(part));
      const bool fits = load.work <= limits.work &&
                        (limits.memory == Limits().memory || memory(load, part) <= limits.memory);
      if (!fits && next != nullptr) {
        const double bytes = memory(load, part);
        if (load.work > limits.work) next->work = std::min(next->work, load.work);
        if (bytes > limits.memory) next->memory = std::min(next->memory, bytes);
      }
      if (!fits || layers_ - before - load.divisible < parts() - part - 1) return;
      if (load.divisible == 0 || (is_last && place + 1 < places)) continue;
      if (!take(place + 1, load)) return;
    }
  }

  // Parts from `part` on, each as long as the limits let it be. What fits stays within them if it
  // is cut shorter, so no other cut reaches further.
  Reach fill(const Limits& limits, int part = 0, int first = 0, int before = 0) const {
    Reach reach;
    for (; part < parts(); ++part) {
      int end = first;
      Load longest;
      each_end(
          part, first, before, limits,
          [&](int last, const Load& load) {
            end = last;
            longest = load;
            return true;
          },
          &reach.next);
      if (end == first) return reach;
      reach.work = std::max(reach.work, longest.work);
      reach.memory = std::max(reach.memory, memory(longest, part));
      before += longest.divisible;
      first = end;
    }
    reach.covers = first == static_cast<int>(work_.chain.size());
    return reach;
  }

  // The least limit under which `reach_of` covers the chain: a limit that does not is the same cut
  // up to the next one.
  template <class ReachOf, class Value, class Next>
  static double least(ReachOf reach_of, Value value, Next next) {
    double low = 0, high = value(reach_of(std::numeric_limits<double>::infinity()));
    while (low < high) {
      const double middle = (low + high) / 2;
      const Reach reach = reach_of(middle < high ? middle : low);
      if (reach.covers)
        high = value(reach);
      else
        low = next(reach);
    }
    return high;
  }

  // Divisible places before each place, and before the end.
  std::vector<int> divisible_before() const {
    std::vector<int> before = {0};
    for (const bool divisible : work_.divisible)
      before.push_back(before.back() + (divisible ? 1 : 0));
    return before;
  }

  // The least that the largest part comes to. On unlike stages what does not fit on a part may fit
  // on the one after it, so that no part is as long as can be and all cuts are looked at:
  // O(parts x places^2). Requires: there is a cut within the limits.
  template <class Value>
  double least_of_unlike(const Limits& limits, Value value) const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const std::vector<int> before = divisible_before();
    std::vector<double> least(before.size(), kNone);  // by where the part before ends
    least.front() = 0;
    for (int part = 0; part < parts(); ++part) {
      std::vector<double> with(least.size(), kNone);
      for (std::size_t start = 0; start < least.size(); ++start)
        if (least[start] < kNone)
          each_end(part, static_cast<int>(start), before[start], limits,
                   [&](int last, const Load& load) {
                     double& own = with[static_cast<std::size_t>(last)];
                     own = std::min(own, std::max(least[start], value(load, part)));
                     return true;
                   });
      least = std::move(with);
    }
    return least.back();
  }

  // By part and place: whether this part and those after it can have all from that place on.
  std::vector<std::vector<bool>> covering(const Limits& limits) const {
    const std::vector<int> before = divisible_before();
    std::vector<std::vector<bool>> covers(static_cast<std::size_t>(parts()) + 1,
                                          std::vector<bool>(before.size()));
    covers.back().back() = true;
    for (int part = parts() - 1; part > 0; --part)
      for (std::size_t start = 0; start < before.size(); ++start)
        each_end(part, static_cast<int>(start), before[start], limits, [&](int last, const Load&) {
          const bool rest =
              covers[static_cast<std::size_t>(part) + 1][static_cast<std::size_t>(last)];
          if (rest) covers[static_cast<std::size_t>(part)][start] = true;
          return !rest;
        });
    return covers;
  }

  // Each part as near to its share of what is left as the limits allow.
  std::vector<ChainRange> even(const Limits& limits) const {
    std::vector<double> left;  // by part: of all that is left, were it there
    for (int part = 0; part < parts(); ++part) {
      left.push_back(0);
      for (int place = 0; place < static_cast<int>(work_.chain.size()); ++place)
        left.back() += work_at(place, part);
    }
    std::vector<std::vector<bool>> covers;
    if (unlike_) covers = covering(limits);
    const auto rest_covers = [&](int part, int from, int divisible) {
      if (part == parts()) return true;
      if (!unlike_) return fill(limits, part, from, divisible).covers;
      return bool(covers[static_cast<std::size_t>(part)][static_cast<std::size_t>(from)]);
    };
    std::vector<ChainRange> ranges;
    int first = 0, before = 0;
    for (int part = 0; part < parts(); ++part) {
      // All parts would take the same time with it.
      const double own = left[static_cast<std::size_t>(part)];
      double speed = 0;  // of this part and those after it, beside this one's
      for (auto p = static_cast<std::size_t>(part); p < left.size(); ++p)
        speed += left[p] == own ? 1 : own / left[p];
      const double share = own / speed;
      std::vector<std::pair<int, Load>> ends;
      each_end(part, first, before, limits, [&](int last, const Load& load) {
        ends.emplace_back(last, load);
        return true;
      });
      const auto distance = [&](const auto& end) { return std::abs(end.second.work - share); };
      std::stable_sort(ends.begin(), ends.end(), [&](const auto& one, const auto& other) {
        return distance(one) < distance(other);
      });
      const auto best = std::find_if(ends.begin(), ends.end(), [&](const auto& end) {
        return rest_covers(part + 1, end.first, before + end.second.divisible);
      });
      TRAINYARD_CHECK(best != ends.end(), "part {} of a balanced split has no end", part);
      ranges.push_back({first, best->first});
      first = best->first;
      before += best->second.divisible;
      for (int later = part + 1; later < parts(); ++later) {
        double dealt = 0;
        for (int place = ranges.back().first; place < ranges.back().last; ++place)
          dealt += work_at(place, later);
        left[static_cast<std::size_t>(later)] -= dealt;
      }
    }
    return ranges;
  }

  const NetworkWork& work_;
  std::vector<StageGpus> gpus_;  // by part; without times work is FLOPs
  bool unlike_;                  // are stages, in their GPUs
  StageLoads loads_;
  std::vector<int> held_;  // by part: micro-batches
  int layers_;
};

}  // namespace

std::vector<ChainRange> split_layers(const NetworkWork& work, const PipelineShape& shape,
                                     const recipe::TrainingRecipe& recipe,
                                     const recipe::ParallelPlan& plan,
                                     std::span<const StageGpus> gpus) {
  const int parts = virtual_stages(shape);
  const auto divisible =
      static_cast<int>(std::count(work.divisible.begin(), work.divisible.end(), true));
  const LayerSplit split = plan.pipeline.layer_split;
  const bool by_time = split == LayerSplit::by_time && parts > 1;
  for (const StageGpus& own : gpus)
    TRAINYARD_CHECK(!by_time || own.times.size() == work.kinds.size(), "{} times of {} kinds",
                    own.times.size(), work.kinds.size());
  TRAINYARD_CHECK(!by_time || !gpus.empty(), "a split by times without any");
  if (split == LayerSplit::balanced || split == LayerSplit::by_memory || by_time) {
    TRAINYARD_CHECK(divisible >= parts, "{} layers for {} virtual stages", divisible, parts);
    return Balance(work, shape, recipe, plan, gpus).cut(split == LayerSplit::by_memory);
  }
  std::vector<int> counts = plan.pipeline.layers_per_chunk;
  if (split != LayerSplit::list) {
    counts.assign(static_cast<std::size_t>(parts), divisible / parts);
    for (int k = 0; k < divisible % parts; ++k)
      ++counts[static_cast<std::size_t>(k)];
  }
  TRAINYARD_CHECK(static_cast<int>(counts.size()) == parts, "{} counts for {} virtual stages",
                  counts.size(), parts);
  int sum = 0;
  for (const int count : counts)
    sum += count;
  TRAINYARD_CHECK(sum == divisible, "the split deals {} of {} layers", sum, divisible);
  return cut_by_counts(work, counts);
}

std::vector<std::string> place_names(const NetworkWork& work) {
  // Kinds of one name differ in what they recompute.
  std::map<std::string_view, int> places_of;
  const auto own = [&](int kind) -> const std::string& {
    return work.kinds[static_cast<std::size_t>(kind)].name;
  };
  for (const int kind : work.chain)
    ++places_of[own(kind)];
  std::vector<std::string> names;
  int layers = 0;
  for (std::size_t place = 0; place < work.chain.size(); ++place) {
    const std::string& name = own(work.chain[place]);
    names.push_back(places_of[name] == 1 ? name : fmt::format("layer {}", layers));
    layers += work.divisible[place] ? 1 : 0;
  }
  return names;
}

}  // namespace trainyard::plan
