#include "sim/lower/flows/folded_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/base/check.h"
#include "sim/base/out_of_range.h"

namespace trainyard::lower {

FoldedLinks::FoldedLinks(const RankStructure& structure, const RankClasses& classes,
                         std::span<const double> capacity)
    : structure_(structure), classes_(classes) {
  std::vector<bool> seen(classes.links, false);
  std::vector<bool> is_first(capacity.size(), false);
  for (std::size_t l = 0; l < capacity.size(); ++l) {
    const std::uint32_t link_class = classes.of_link[l];
    if (seen[link_class]) continue;
    seen[link_class] = true;
    is_first[l] = true;
    TRAINYARD_CHECK(link_class == capacities_.size(), "classes are in order");
    if (!(capacity[l] >= 1 && capacity[l] < 0x1p62))
      throw OutOfRange(fmt::format("a link of {} B/s is none that can be simulated", capacity[l]));
    capacities_.push_back(static_cast<std::int64_t>(capacity[l]));
  }
  for (std::size_t p = 0; p < structure.paths.size(); ++p) {
    for (const std::uint32_t link : structure.paths[p].links) {
      if (is_first[link])
        crossings_[{classes.of_path[p], classes.of_link[link]}] += structure.paths[p].weight;
    }
  }
}

FoldedLinks::Paths FoldedLinks::paths(const RankStructure::Edge& edge) const {
  Paths folded;
  std::set<std::uint32_t> done;
  for (std::uint32_t p = edge.first_path; p < edge.first_path + edge.paths; ++p) {
    const std::uint32_t path_class = classes_.of_path[p];
    if (!done.insert(path_class).second) continue;
    engine::Path path;
    std::vector<std::uint32_t> links;
    for (const std::uint32_t link : structure_.paths[p].links)
      links.push_back(classes_.of_link[link]);
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    for (const std::uint32_t link : links)
      path.push_back({static_cast<LinkId>(link), crossings_.at({path_class, link})});
    folded.paths.push_back(std::move(path));
    folded.layouts.push_back(structure_.paths[p].layout);
    folded.loads.push_back(structure_.paths[p].load);
  }
  const auto is_full = [](std::uint32_t load) { return load == engine::kFullLoad; };
  if (std::all_of(folded.loads.begin(), folded.loads.end(), is_full)) folded.loads.clear();
  return folded;
}

}  // namespace trainyard::lower
