#include "sim/lower/transfer_tables.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/base/out_of_range.h"

namespace trainyard::lower {

using cost::GroupShape;
using cost::MessageTerms;
using plan::Connection;
using plan::Traffic;
using plan::TransferSpec;

namespace {

engine::Transfer as_transfer(const MessageTerms& terms) {
  engine::Transfer transfer;
  transfer.latency = to_duration(terms.latency);
  transfer.bytes = terms.wire_bytes;
  transfer.units_taken = terms.channels;
  if (terms.wire_bytes > Bytes(0)) {
    const double rate = terms.bandwidth.count();
    if (!(rate >= 1 && rate < 0x1p62))
      throw OutOfRange(fmt::format("a transfer at {} B/s is none that can be simulated", rate));
    transfer.rate = static_cast<std::int64_t>(rate);
  }
  return transfer;
}

Bytes carried(const Connection& connection, Bytes bytes) {
  if (connection.busiest_load == 1) return bytes;
  return Bytes(static_cast<std::int64_t>(
      std::ceil(connection.busiest_load * static_cast<double>(bytes.count()))));
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
                shape.inter_latency.count(),
                shape.inside_rings,
                shape.inside_exchange,
                shape.gpu_kinds};
  const auto [at, added] = table_of_.try_emplace(key, static_cast<std::uint32_t>(transfers.size()));
  if (added) add(connection, shape);
  return at->second;
}

// `terms`: those of the whole collective.
engine::Transfer TransferTables::collective_transfer(plan::ConnectionId id,
                                                     const TransferSpec& spec,
                                                     const GroupShape& shape, MessageTerms& terms) {
  const collective::Choice& chosen = algorithms_.of(spec.kind);
  const Bytes bytes = carried(cast_.connections[id], spec.bytes);
  try {
    terms = collective_terms(messages_, spec.kind, spec.routing, chosen, bytes, shape);
  } catch (UnsupportedCollective& refused) {
    refused.message += fmt::format(" ({})", cast_.connections[id].name);
    throw;
  }
  if (!flows_) return as_transfer(terms);
  const FlowLayout layout = flow_layout(spec.kind, spec.routing, chosen.algorithm);
  MessageTerms unit = flow_layouts_.per_unit(layout, terms, bytes, shape);
  // Each path of an exchange has a load of its own; the busiest take as long as the collective.
  const double busiest = cast_.connections[id].busiest_load;
  if (busiest != 1 && is_exchange(layout))
    unit.wire_bytes = Bytes(std::llround(static_cast<double>(unit.wire_bytes.count()) / busiest));
  engine::Transfer transfer = as_transfer(unit);
  transfer.layout = number_in(layouts_[id], layout);
  return transfer;
}

void TransferTables::add(plan::ConnectionId id, const GroupShape& shape) {
  const Connection& connection = cast_.connections[id];
  std::vector<engine::Transfer>& table = transfers.emplace_back();
  std::vector<TransferEstimate>& estimated = estimates.emplace_back();
  for (const TransferSpec& spec : connection.transfers) {
    TransferEstimate& estimate = estimated.emplace_back();
    estimate.spec = spec;
    switch (connection.traffic) {
      case Traffic::collective:
        estimate.shape = shape;
        table.push_back(collective_transfer(id, spec, shape, estimate.terms));
        break;
      case Traffic::message:
        estimate.point_to_point = true;
        estimate.shape = shape;
        estimate.terms = messages_.point_to_point(spec.bytes, shape);
        if (connection.copied) estimate.terms.channels = 0;
        table.push_back(as_transfer(estimate.terms));
        break;
      case Traffic::meeting:
        estimate.meeting = true;
        estimate.shape = shape;
        estimate.terms.latency = Seconds(spec.time);
        table.push_back(as_transfer(estimate.terms));
        break;
      case Traffic::host:
        estimate.host = connection.host;
        estimate.shape.gpu_kind = shape.gpu_kind;
        estimate.terms =
            host_transfer_terms(connection.host, spec.bytes, shape.intra_bandwidth,
                                gpus_[static_cast<std::size_t>(shape.gpu_kind)].host_copies);
        table.push_back(as_transfer(estimate.terms));
        break;
    }
  }
}

}  // namespace trainyard::lower
