#include "sim/lower/wide_links.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/base/divide.h"

namespace trainyard::lower {
namespace {

using Path = RankStructure::Path;

struct LinkLoad {
  Int128 users = 0, rate = 0;
  std::int64_t fastest = 0;

  bool fits(double capacity) const {
    const auto carried = static_cast<std::int64_t>(capacity);
    return rate + users <= carried || users * fastest <= carried;
  }
};

// Moves what an edge keeps of its paths to the place `to` and returns how many that are.
std::uint32_t keep_paths(std::vector<Path>& paths, const RankStructure::Edge& edge,
                         std::uint32_t to) {
  const auto own = [&paths](std::uint32_t from, std::uint32_t count) {
    return std::span(paths).subspan(from, count);
  };
  const std::span<Path> all = own(edge.first_path, edge.paths);
  if (std::all_of(all.begin(), all.end(), [](const Path& path) { return path.links.empty(); }))
    return 0;
  std::vector<std::uint32_t> crossing;  // layouts of which paths cross links
  for (const Path& path : all)
    if (!path.links.empty()) crossing.push_back(path.layout);
  std::uint32_t kept = 0;
  for (Path& path : all) {
    if (path.links.empty()) {
      if (std::find(crossing.begin(), crossing.end(), path.layout) != crossing.end()) continue;
      crossing.push_back(path.layout);
    }
    if (Path& place = paths[to + kept++]; &place != &path) place = std::move(path);
  }
  return kept;
}

}  // namespace

void leave_out_wide_links(RankStructure& structure, std::span<const double> capacity,
                          const std::function<PathLoad(std::size_t, std::uint32_t)>& load) {
  std::vector<LinkLoad> loads(capacity.size());
  for (std::size_t e = 0; e < structure.edges.size(); ++e) {
    const RankStructure::Edge& edge = structure.edges[e];
    for (std::uint32_t p = edge.first_path; p < edge.first_path + edge.paths; ++p) {
      const Path& path = structure.paths[p];
      const PathLoad each = load(e, path.layout);
      const Int128 users = Int128{each.at_once} * path.weight;
      for (const std::uint32_t link : path.links) {
        loads[link].users += users;
        loads[link].rate += users * each.rate;
        if (users > 0) loads[link].fastest = std::max(loads[link].fastest, each.rate);
      }
    }
  }
  std::uint32_t to = 0;
  for (RankStructure::Edge& edge : structure.edges) {
    for (std::uint32_t p = edge.first_path; p < edge.first_path + edge.paths; ++p)
      std::erase_if(structure.paths[p].links,
                    [&](std::uint32_t link) { return loads[link].fits(capacity[link]); });
    const std::uint32_t kept = keep_paths(structure.paths, edge, to);
    edge.first_path = to;
    edge.paths = kept;
    to += kept;
  }
  structure.paths.resize(to);
}

}  // namespace trainyard::lower
