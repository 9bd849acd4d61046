#include "sim/plan/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/base/check.h"

namespace trainyard::plan {

using models::NetworkWork;
using recipe::LayerSplit;

namespace {

// counts[k] divisible places for virtual stage k. The others go with the first place after them,
// those at the end with the last before.
std::vector<ChainRange> cut_by_counts(const NetworkWork& work, const std::vector<int>& counts) {
  std::vector<ChainRange> ranges;
  int place = 0;
  const int places = static_cast<int>(work.chain.size());
  const auto last = std::find(work.divisible.rbegin(), work.divisible.rend(), true);
  const int after_last = static_cast<int>(work.divisible.rend() - last);
  for (std::size_t k = 0; k < counts.size(); ++k) {
    ChainRange range{place, place};
    for (int taken = 0; place < places; ++place) {
      const bool divisible = work.divisible[static_cast<std::size_t>(place)];
      if (taken == counts[k] && (divisible || (taken > 0 && place < after_last))) break;
      taken += divisible ? 1 : 0;
    }
    range.last = k + 1 == counts.size() ? places : place;
    place = range.last;
    ranges.push_back(range);
  }
  return ranges;
}

// The smallest possible largest weight of `parts` contiguous parts, each with at least one place.
// least[k][i]: of the places i .. end in k parts. O(parts * places^2).
std::vector<ChainRange> cut_balanced(const NetworkWork& work, int parts) {
  const int places = static_cast<int>(work.chain.size());
  std::vector<double> prefix(static_cast<std::size_t>(places) + 1, 0);
  for (int i = 0; i < places; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const models::LayerWork& layer = work.kinds[static_cast<std::size_t>(work.chain[at])];
    prefix[at + 1] = prefix[at] + layer.forward_model_flops.count();
  }
  const auto weight = [&](int first, int last) {
    return prefix[static_cast<std::size_t>(last)] - prefix[static_cast<std::size_t>(first)];
  };
  const double infinity = std::numeric_limits<double>::infinity();
  using Row = std::vector<double>;
  std::vector<Row> least(static_cast<std::size_t>(parts) + 1,
                         Row(static_cast<std::size_t>(places) + 1, infinity));
  least[0][static_cast<std::size_t>(places)] = 0;
  for (int k = 1; k <= parts; ++k) {
    for (int i = places - k; i >= 0; --i) {
      double best = infinity;
      for (int j = i + 1; j <= places - (k - 1); ++j) {
        const double first_part = weight(i, j);
        if (first_part >= best) break;
        best = std::min(
            best, std::max(first_part,
                           least[static_cast<std::size_t>(k) - 1][static_cast<std::size_t>(j)]));
      }
      least[static_cast<std::size_t>(k)][static_cast<std::size_t>(i)] = best;
    }
  }
  const double bound = least[static_cast<std::size_t>(parts)][0];
  std::vector<ChainRange> ranges;
  for (int k = parts, i = 0; k >= 1; --k) {
    // As many places as the bound allows: the later stages, which also wait longest, are the
    // lighter.
    int j = i + 1;
    while (j + 1 <= places - (k - 1) && weight(i, j + 1) <= bound)
      ++j;
    if (k == 1) j = places;
    ranges.push_back({i, j});
    i = j;
  }
  return ranges;
}

}  // namespace

std::vector<ChainRange> split_layers(const NetworkWork& work, const schedule::PipelineShape& shape,
                                     LayerSplit split, const std::vector<int>& layers_per_chunk) {
  const int parts = shape.stages * shape.chunks;
  if (split == LayerSplit::balanced) {
    TRAINYARD_CHECK(static_cast<int>(work.chain.size()) >= parts, "{} places for {} virtual stages",
                    work.chain.size(), parts);
    return cut_balanced(work, parts);
  }
  const auto divisible =
      static_cast<int>(std::count(work.divisible.begin(), work.divisible.end(), true));
  std::vector<int> counts = layers_per_chunk;
  if (split == LayerSplit::uniform) {
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
