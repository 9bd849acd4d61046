#include "sim/simulate/collective_time.h"

#include <map>

#include "sim/base/check.h"
#include "sim/engine/engine.h"
#include "sim/lower/flows/flow_paths.h"

namespace trainyard::simulate {

using cost::Estimate;
using cost::MessageTerms;

namespace {

IdVector<LinkId, std::int64_t> capacities(const topologies::Topology& topology) {
  IdVector<LinkId, std::int64_t> capacity;
  for (const double each : lower::link_capacities(topology))
    capacity.push_back(static_cast<std::int64_t>(each));
  return capacity;
}

// One actor stands for all ranks, which do the same at the same time.
engine::Program one_collective() {
  engine::Op op;
  op.kind = engine::OpKind::collective;
  engine::Program program;
  program.streams = {"communication"};
  program.labels = {"collective"};
  program.blocks.edit().push_back({{op}});
  program.calls.push_back({});
  return program;
}

}  // namespace

LoneCollectives::LoneCollectives(const topologies::ClusterSpec& cluster,
                                 std::span<const GpuPrice> prices, Benchmark benchmark,
                                 recipe::Fidelity fidelity)
    : cluster_(cluster), messages_(message_cost(prices)) {
  const int each = benchmark.per_server > 0 ? benchmark.per_server : cluster.fewest_gpus();
  TRAINYARD_CHECK(each <= cluster.fewest_gpus(), "{} ranks on a server", each);
  TRAINYARD_CHECK(2 <= benchmark.ranks && benchmark.ranks <= cluster.servers * each,
                  "a collective of {} ranks", benchmark.ranks);
  for (int rank = 0; rank < benchmark.ranks; ++rank)
    gpus_.push_back(rank / each * cluster.gpu_slots() + rank % each);
  const bool flows = fidelity == recipe::Fidelity::flow;
  std::vector<int> players;
  for (int server = 0; server < cluster.servers; ++server)
    players.push_back(cluster.server_at(server).gpus);
  shape_ = lower::GroupShapes(cluster, players, flows).of_group(gpus_);
  if (flows) topology_.emplace(cluster);
}

Estimate LoneCollectives::time(CollectiveKind kind, const collective::Choice& choice, Bytes bytes) {
  lower::require_support(kind, choice, shape_);
  const MessageTerms terms = messages_->collective(kind, choice, bytes, shape_);
  Estimate estimate;
  estimate.basis = terms.basis;
  estimate.reach = terms.reach;
  estimate.time = terms.latency;
  if (terms.wire_bytes == Bytes(0)) return estimate;
  estimate.time = terms.latency + terms.wire_bytes / terms.bandwidth;
  if (!topology_) return estimate;
  const lower::FlowLayout layout = lower::flow_layout(kind, {}, choice.algorithm);
  const MessageTerms unit = layouts_.per_unit(layout, terms, bytes, shape_);
  estimate.time = std::chrono::duration_cast<Seconds>(flow_time(layout, unit));
  return estimate;
}

Duration LoneCollectives::flow_time(const lower::FlowLayout& layout, const MessageTerms& unit) {
  engine::Communicator group;
  group.members = {engine::ActorId(0)};
  for (const lower::FlowEdge& edge : layouts_.edges(layout, gpus_, cluster_, shape_)) {
    std::map<std::uint32_t, std::int32_t> crossings;
    for (const std::uint32_t link : lower::route_links(*topology_, edge.from, edge.to))
      crossings[link] += edge.weight;
    engine::Path path;
    for (const auto& [link, times] : crossings)
      path.push_back({LinkId(link), times});
    group.paths.push_back(std::move(path));
  }
  engine::Transfer transfer;
  transfer.latency = to_duration(unit.latency);
  transfer.bytes = unit.wire_bytes;
  transfer.rate = static_cast<std::int64_t>(unit.bandwidth.count());
  const engine::Program program = one_collective();
  const engine::KernelTimes no_kernels;
  engine::Machine machine;
  machine.link_capacity = capacities(*topology_);
  machine.transfers = {{transfer}};
  machine.communicators.push_back(std::move(group));
  engine::Actor actor;
  actor.program = &program;
  actor.times = &no_kernels;
  actor.communicators = {engine::CommunicatorId(0)};
  machine.actors.push_back(std::move(actor));
  const engine::Outcome outcome = engine::run(machine, {.record = engine::Record::nothing});
  return std::get<engine::Trace>(outcome).end;
}

}  // namespace trainyard::simulate
