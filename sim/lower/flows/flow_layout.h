// Which edges a collective's flows take, and how much each of them carries.
#pragma once

#include <exception>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layer/expert_routing.h"
#include "sim/collective/algorithm.h"
#include "sim/cost/cost.h"
#include "topologies/cluster.h"

namespace trainyard::lower {

// Collectives of one group whose layouts are equal share their paths.
struct FlowLayout {
  const collective::AlgorithmEntry* algorithm = nullptr;  // null: rings, each edge alike
  CollectiveKind kind = CollectiveKind::all_reduce;       // of an algorithm
  models::Routing routing{};                              // of rows that share their way
  friend bool operator==(const FlowLayout&, const FlowLayout&) = default;
};

// An algorithm or a protocol was chosen that cannot carry out a collective of the job.
struct UnsupportedCollective : std::exception {
  UnsupportedCollective(CollectiveKind of, bool by_protocol, std::string text, std::string cure)
      : kind(of), protocol(by_protocol), message(std::move(text)), hint(std::move(cure)) {}
  const char* what() const noexcept override { return message.c_str(); }

  CollectiveKind kind;
  bool protocol;  // else the algorithm
  std::string message, hint;
};

// Throws UnsupportedCollective unless what is chosen supports such a group.
void require_support(CollectiveKind kind, const collective::Choice& chosen,
                     const cost::GroupShape& shape);

// The layout of a collective. Where no algorithm was chosen: pairwise for an all-to-all, by servers
// for rows that share their way, else rings.
FlowLayout flow_layout(CollectiveKind kind, const models::Routing& routing,
                       const collective::AlgorithmEntry* chosen);

// A path carries `weight` times the bytes of a unit; it shares its links as that many flows would,
// of `load` times the bytes each.
struct FlowEdge {
  int from, to, weight;
  bool for_server = false;  // it stands for those to all GPUs of the server it leads to
  double load = 1;
  friend bool operator==(const FlowEdge&, const FlowEdge&) = default;
};

// Whether every rank sends to others by turns, so that what it gets follows from its load.
bool is_exchange(const FlowLayout& layout);

// Gives the edges of an exchange the loads of the GPUs that they stand for, the mean of several.
// Rows on their way back are as many as those on their way there, and links carry both ways alike.
// `load`: by GPU, in units of the even share.
void load_edges(std::vector<FlowEdge>& edges, const std::map<int, double>& load,
                const topologies::ClusterSpec& cluster);

// Computes layouts once for each size of group.
// Cost: a ring n edges, trees and hierarchies up to 4n, halving and doubling n log2 n, an
// all-to-all n(n-1) up to kMostPairwise ranks. Beyond, what a rank sends to another server is one
// edge of that weight: n(g-1) + n(N-1), with the same bytes through every port.
class FlowLayouts {
 public:
  // The edges between the GPUs of a group. Requires: two or more GPUs; the layout's algorithm
  // supports the group.
  std::vector<FlowEdge> edges(const FlowLayout& layout, std::span<const int> gpus,
                              const topologies::ClusterSpec& cluster,
                              const cost::GroupShape& shape);

  // A collective's terms as each unit of weight has them: its bytes, and the rate at which it takes
  // as long as the collective does where nothing else is on its links. `bytes`: the buffer.
  cost::MessageTerms per_unit(const FlowLayout& layout, const cost::MessageTerms& terms,
                              Bytes bytes, const cost::GroupShape& shape);

  static constexpr int kMostPairwise = 256;

 private:
  struct Spread {
    std::vector<FlowEdge> edges;  // between positions
    collective::Share unit;       // of the buffer
  };
  const Spread& spread(const FlowLayout& layout, const collective::Group& group);
  const std::vector<FlowEdge>& rings(std::span<const int> gpus,
                                     const topologies::ClusterSpec& cluster);

  std::map<std::tuple<std::string_view, CollectiveKind, int, int, int>, Spread> spreads_;
  // Between GPUs of the first server of a kind: packing a mesh is a search.
  std::map<std::pair<int, std::vector<int>>, std::vector<FlowEdge>> rings_;
};

// The place of a layout in a list, at whose end it is put if it is new.
std::uint32_t number_in(std::vector<FlowLayout>& known, const FlowLayout& layout);

// What a collective of a job costs, by its own way for rows that share theirs.
// Throws UnsupportedCollective.
cost::MessageTerms collective_terms(const cost::MessageCost& messages, CollectiveKind kind,
                                    const models::Routing& routing,
                                    const collective::Choice& chosen, Bytes bytes,
                                    const cost::GroupShape& shape);

}  // namespace trainyard::lower
