#include "sim/simulate/monitor/gpu_traffic.h"

#include <map>

#include "sim/simulate/report/actor_spans.h"

namespace trainyard::simulate {

using engine::Op;
using engine::OpKind;
using engine::Span;
using lower::TransferEstimate;
using topologies::IntraKind;

namespace {

// Share of what a member sends that leaves its server.
std::int64_t leaving(const TransferEstimate& transfer, std::int64_t bytes) {
  const cost::GroupShape& shape = transfer.shape;
  if (shape.servers <= 1 || shape.ranks <= 1) return 0;
  if (transfer.point_to_point) return bytes;
  if (transfer.spec.kind == CollectiveKind::all_to_all)
    return share_of(bytes, Duration(shape.ranks - shape.ranks_per_server),
                    Duration(shape.ranks - 1));
  return share_of(bytes, Duration(shape.servers), Duration(shape.ranks));
}

class TransferReader {
 public:
  TransferReader(const Job& job, const Step& step)
      : step_(step), machine_(step.lowered.machine), kinds_(gpu_kinds(job.cluster)) {
    for (const lower::RankClass& rank_class : step.lowered.classes)
      if (!step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)].on_gpu())
        on_host_[rank_class.actor] = true;
    for (const Span& span : step.trace().spans) {
      const engine::Actor& actor = machine_.actors[span.actor];
      const Op& op = actor.program->op(span.call, span.op);
      if (op.kind == OpKind::send)
        sent_[actor.channels[op.port]].push_back({span.active, span.end});
    }
  }

  std::vector<Crossing> crossings(const lower::RankClass& rank_class) const {
    std::vector<Crossing> list;
    std::map<engine::ChannelId, std::size_t> received;
    const engine::Actor& actor = machine_.actors[rank_class.actor];
    const IntraKind intra = kinds_[static_cast<std::size_t>(rank_class.gpu_kind)].server->intra;
    for (const Span& span : spans_of(step_.trace(), rank_class.actor)) {
      const Op& op = actor.program->op(span.call, span.op);
      if (op.kind == OpKind::compute) continue;
      if (op.kind == OpKind::collective)
        list.push_back(collective(actor, op, span, intra));
      else
        list.push_back(message(actor, op, span, intra, received));
    }
    return list;
  }

 private:
  Crossing collective(const engine::Actor& actor, const Op& op, const Span& span,
                      IntraKind intra) const {
    const engine::Communicator& group = machine_.communicators[actor.communicators[op.port]];
    const TransferEstimate& transfer = step_.lowered.transfers[group.transfers][op.subject];
    Crossing crossing{.time = {span.active, span.end}, .kernel = {span.begin, span.end}};
    crossing.units = transfer.terms.channels;
    const LinkBytes bytes = link_bytes(transfer, intra);
    if (!transfer.host || *transfer.host == HostTransfer::to_host) crossing.out = bytes;
    if (!transfer.host || *transfer.host == HostTransfer::to_device) crossing.in = bytes;
    if (transfer.host || transfer.meeting) crossing.kernel = {};
    return crossing;
  }

  Crossing message(const engine::Actor& actor, const Op& op, const Span& span, IntraKind intra,
                   std::map<engine::ChannelId, std::size_t>& received) const {
    const engine::ChannelId id = actor.channels[op.port];
    const engine::Channel& channel = machine_.channels[id];
    const TransferEstimate& transfer = step_.lowered.transfers[channel.transfers][op.subject];
    const bool host = on_host_.contains(channel.source) || on_host_.contains(channel.destination);
    const LinkBytes bytes = link_bytes(transfer, host ? IntraKind::pcie : intra);
    Crossing crossing{.time = {span.active, span.end}, .kernel = {span.begin, span.end}};
    crossing.units = transfer.terms.channels;
    if (host) crossing.kernel = {};  // copied, and waited for by the host
    if (op.kind == OpKind::send) {
      crossing.out = bytes;
      return crossing;
    }
    crossing.in = bytes;
    // It arrives while it is sent, whether or not the program already waits for it.
    const auto sends = sent_.find(id);
    const std::size_t number = received[id]++;
    if (sends != sent_.end() && number < sends->second.size())
      crossing.time = sends->second[number];
    return crossing;
  }

  const Step& step_;
  const engine::Machine& machine_;
  std::vector<topologies::GpuKind> kinds_;
  std::map<engine::ActorId, bool> on_host_;
  std::map<engine::ChannelId, std::vector<Stretch>> sent_;
};

}  // namespace

LinkBytes link_bytes(const TransferEstimate& transfer, IntraKind intra) {
  const std::int64_t bytes = transfer.terms.wire_bytes.count();
  if (transfer.host) {
    const bool crosses =
        *transfer.host == HostTransfer::to_host || *transfer.host == HostTransfer::to_device;
    return {0, crosses ? bytes : 0};
  }
  const std::int64_t outside = leaving(transfer, bytes);
  return joins_by_pcie(intra) ? LinkBytes{0, bytes} : LinkBytes{bytes - outside, outside};
}

GpuTraffic::GpuTraffic(const Job& job, const Step& step) {
  const TransferReader reader(job, step);
  for (const lower::RankClass& rank_class : step.lowered.classes)
    crossings_.push_back(reader.crossings(rank_class));
}

}  // namespace trainyard::simulate
