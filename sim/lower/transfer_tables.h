// What every transfer of a connection costs in each shape of group that speaks on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/host_copies.h"
#include "sim/engine/machine.h"
#include "sim/plan/cast.h"

namespace trainyard::lower {

// A message or collective as it was estimated, for the report.
struct TransferEstimate {
  bool point_to_point = false;
  std::optional<HostTransfer> host;  // of one player alone
  plan::TransferSpec spec;           // kind is meaningless for a message and for those
  cost::GroupShape shape;
  cost::MessageTerms terms;
};

class TransferTables {
 public:
  // With `flows` a collective's bytes are those of one of its rings. All references must outlive
  // this.
  TransferTables(const plan::Cast& cast, const cost::MessageCost& messages,
                 const std::vector<cost::HostCopyLaw>& host_copies, bool flows)
      : cast_(cast), messages_(messages), host_copies_(host_copies), flows_(flows) {}

  // The table of a connection in groups of this shape; of Traffic::host, the bandwidth that the
  // player counts on is the shape's intra_bandwidth. Indexes transfers and estimates.
  std::uint32_t table(plan::ConnectionId connection, const cost::GroupShape& shape);

  std::vector<std::vector<engine::Transfer>> transfers;  // by Op::subject
  std::vector<std::vector<TransferEstimate>> estimates;  // like transfers

 private:
  using Key =
      std::tuple<plan::ConnectionId, int, int, int, double, double, std::int64_t, std::int64_t>;
  void add(plan::ConnectionId connection, const cost::GroupShape& shape);

  const plan::Cast& cast_;
  const cost::MessageCost& messages_;
  const std::vector<cost::HostCopyLaw>& host_copies_;
  bool flows_;
  std::map<Key, std::uint32_t> table_of_;
};

}  // namespace trainyard::lower
