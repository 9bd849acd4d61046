#include "sim/lower/flows/wide_links.h"

#include <algorithm>
#include <map>
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
  const std::span<Path> all = std::span(paths).subspan(edge.first_path, edge.paths);
  const bool is_one_time = std::all_of(all.begin(), all.end(), [](const Path& path) {
    return path.links.empty() && path.load == engine::kFullLoad;
  });
  if (is_one_time) return 0;
  std::map<std::uint32_t, std::uint32_t> crossing, most;  // loads, by layout
  for (const Path& path : all) {
    std::map<std::uint32_t, std::uint32_t>& of = path.links.empty() ? most : crossing;
    of[path.layout] = std::max(of[path.layout], path.load);
  }
  std::uint32_t kept = 0;
  for (Path& path : all) {
    if (path.links.empty()) {
      const bool is_last = path.load == most[path.layout] && path.load > crossing[path.layout];
      if (!is_last) continue;
      crossing[path.layout] = path.load;
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
