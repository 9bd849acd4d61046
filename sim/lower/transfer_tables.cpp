#include "sim/lower/transfer_tables.h"

#include <cmath>

#include "sim/base/check.h"
#include "sim/cost/routed_exchange.h"
#include "sim/lower/flow_paths.h"

namespace trainyard::lower {

using cost::GroupShape;
using cost::MessageTerms;
using plan::Connection;
using plan::Traffic;
using plan::TransferSpec;

namespace {

engine::Transfer as_transfer(const MessageTerms& terms, int rings) {
  engine::Transfer transfer;
  transfer.latency = to_duration(terms.latency);
  transfer.bytes = Bytes((terms.wire_bytes.count() + rings - 1) / rings);
  transfer.units_taken = terms.channels;
  if (terms.wire_bytes > Bytes(0)) {
    const double rate = terms.bandwidth.count() / rings;
    TRAINYARD_CHECK(rate >= 1 && rate < 0x1p62, "a transfer at {} B/s", rate);
    transfer.rate = static_cast<std::int64_t>(rate);
  }
  return transfer;
}

Bytes carried(const Connection& connection, Bytes bytes) {
  if (connection.busiest_load == 1) return bytes;
  return Bytes(static_cast<std::int64_t>(
      std::ceil(connection.busiest_load * static_cast<double>(bytes.count()))));
}

MessageTerms collective_terms(const cost::MessageCost& messages, const Connection& connection,
                              const TransferSpec& spec, const GroupShape& shape) {
  const Bytes bytes = carried(connection, spec.bytes);
  if (spec.routing.experts == 0) return messages.collective(spec.kind, bytes, shape);
  return hierarchical_all_to_all(messages, shared_rows(spec.routing, bytes, shape), shape);
}

}  // namespace

std::uint32_t TransferTables::table(plan::ConnectionId connection, const GroupShape& shape) {
  const Key key{connection,
                shape.ranks,
                shape.servers,
                shape.ranks_per_server,
                shape.intra_bandwidth.count(),
                shape.inter_bandwidth.count(),
                shape.intra_latency.count(),
                shape.inter_latency.count()};
  const auto [at, added] = table_of_.try_emplace(key, static_cast<std::uint32_t>(transfers.size()));
  if (added) add(connection, shape);
  return at->second;
}

void TransferTables::add(plan::ConnectionId id, const GroupShape& shape) {
  const Connection& connection = cast_.connections[id];
  const bool collective = connection.traffic == Traffic::collective;
  const int rings = flows_ && collective ? ring_count(shape.servers, shape.ranks_per_server) : 1;
  std::vector<engine::Transfer>& table = transfers.emplace_back();
  std::vector<TransferEstimate>& estimated = estimates.emplace_back();
  for (const TransferSpec& spec : connection.transfers) {
    TransferEstimate estimate;
    estimate.spec = spec;
    estimate.shape = shape;
    switch (connection.traffic) {
      case Traffic::collective:
        estimate.terms = collective_terms(messages_, connection, spec, shape);
        break;
      case Traffic::message:
        estimate.point_to_point = true;
        estimate.terms = messages_.point_to_point(spec.bytes, shape);
        break;
      case Traffic::host:
        estimate.host = connection.host;
        estimate.shape = {};
        estimate.terms =
            host_transfer_terms(connection.host, spec.bytes, shape.intra_bandwidth, host_copies_);
        break;
    }
    table.push_back(as_transfer(estimate.terms, rings));
    estimated.push_back(estimate);
  }
}

}  // namespace trainyard::lower
