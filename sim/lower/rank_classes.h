// Rank classes: which ranks behave alike, so that one of each class is simulated for all.
//
// Ranks, their groups, and the links that groups use are coloured; a colour is refined until it is
// equitable: all ranks of a colour run equal programs on equal GPUs in equal groups, all groups of
// a colour have as many members of each colour on as many links of each colour, and all links of a
// colour have the same capacity and carry as many paths of each colour. Fluid max-min sharing
// depends on nothing else, so the folded machine gives the integers of the unfolded one.
//
// Source: colour refinement (1-dimensional Weisfeiler-Leman), Berkholz, Bonsma, Grohe, 2017.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/machine.h"

namespace trainyard::lower {

// What ranks have in common. Indices are dense; colours are too.
struct RankStructure {
  // A communicator or a channel. `label` tells kinds and sizes apart; `ordered` ones (a channel's
  // source and destination) distinguish their members by place.
  struct Edge {
    std::uint32_t label = 0;
    bool ordered = false;
    std::uint32_t first_member = 0, members = 0;  // into RankStructure::members
    std::uint32_t first_path = 0, paths = 0;      // into RankStructure::paths; none without flows
  };
  struct Path {
    std::uint32_t source = 0, destination = 0;  // ranks
    std::vector<std::uint32_t> links;
    std::uint32_t layout = 0;                // of its edge: which transfers take it
    std::int32_t weight = 1;                 // how many units of a transfer's bytes it carries
    std::uint32_t load = engine::kFullLoad;  // of each unit's bytes
  };
  std::vector<std::uint32_t> rank_colour{};  // to begin with: program, GPU, slow-down
  std::vector<Edge> edges{};
  // Ranks, edge after edge: half a million edges have no arrays.
  std::vector<std::uint32_t> members{};
  std::vector<Path> paths{};
  std::vector<std::uint32_t> link_colour{};  // to begin with: capacity

  std::span<const std::uint32_t> members_of(const Edge& edge) const {
    return std::span(members).subspan(edge.first_member, edge.members);
  }
};

struct RankClasses {
  std::vector<std::uint32_t> of_rank, of_edge, of_path, of_link;  // class by index
  std::uint32_t ranks = 0, edges = 0, paths = 0, links = 0;       // how many classes
};

// Classes are numbered by their first members. O((members + path links) log) per round, at most as
// many rounds as there are ranks and links; a symmetric job needs two, without paths one.
RankClasses refine(const RankStructure& structure);

// Every rank, edge, path and link in a class of its own.
RankClasses unfolded(const RankStructure& structure);

}  // namespace trainyard::lower
