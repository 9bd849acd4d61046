// What every transfer of a connection costs in each shape of group that speaks on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/machine.h"
#include "sim/lower/flows/flow_layout.h"
#include "sim/lower/gpu_laws.h"
#include "sim/plan/cast.h"

namespace trainyard::lower {

// A message or collective as it was estimated, for the report.
struct TransferEstimate {
  bool point_to_point = false;
  bool meeting = false;              // nothing moves, nobody computes
  std::optional<HostTransfer> host;  // of one player alone
  plan::TransferSpec spec;           // kind is meaningless for a message and for those
  cost::GroupShape shape;
  cost::MessageTerms terms;
};

class TransferTables {
 public:
  // `gpus`: by topologies::gpu_kinds. With `flows` a collective's bytes are those of a unit of its
  // layout. All references must outlive this.
  TransferTables(const plan::Cast& cast, const cost::MessageCost& messages,
                 std::span<const GpuLaws> gpus, const collective::Choices& algorithms, bool flows)
      : cast_(cast),
        messages_(messages),
        gpus_(gpus),
        algorithms_(algorithms),
        flows_(flows),
        layouts_(cast.connections.size()) {}

  // The table of a connection in groups of this shape; of Traffic::host, the bandwidth that the
  // player counts on is the shape's intra_bandwidth. Indexes transfers and estimates.
  std::uint32_t table(plan::ConnectionId connection, const cost::GroupShape& shape);

  // How flows of a connection are laid, by Transfer::layout; complete after the first table.
  const std::vector<FlowLayout>& layouts(plan::ConnectionId connection) const {
    return layouts_[connection];
  }
  // `load`: by GPU; empty: all alike.
  std::vector<FlowEdge> edges(const FlowLayout& layout, std::span<const int> gpus,
                              const topologies::ClusterSpec& cluster, const cost::GroupShape& shape,
                              const std::map<int, double>& load) {
    std::vector<FlowEdge> edges = flow_layouts_.edges(layout, gpus, cluster, shape);
    if (!load.empty() && is_exchange(layout)) load_edges(edges, load, cluster);
    return edges;
  }

  std::vector<std::vector<engine::Transfer>> transfers;  // by Op::subject
  std::vector<std::vector<TransferEstimate>> estimates;  // like transfers

 private:
  using Key = std::tuple<plan::ConnectionId, int, int, int, double, double, std::int64_t,
                         std::int64_t, int, double, std::uint64_t>;
  void add(plan::ConnectionId connection, const cost::GroupShape& shape);
  engine::Transfer collective_transfer(plan::ConnectionId connection,
                                       const plan::TransferSpec& spec,
                                       const cost::GroupShape& shape, cost::MessageTerms& terms);

  const plan::Cast& cast_;
  const cost::MessageCost& messages_;
  std::span<const GpuLaws> gpus_;
  const collective::Choices& algorithms_;
  bool flows_;
  FlowLayouts flow_layouts_;
  IdVector<plan::ConnectionId, std::vector<FlowLayout>> layouts_;
  std::map<Key, std::uint32_t> table_of_;
};

}  // namespace trainyard::lower
