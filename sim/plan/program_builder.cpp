#include "sim/plan/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "sim/base/check.h"

namespace trainyard::plan {

using engine::Op;
using engine::OpKind;
using models::LayerGroup;
using models::NamedKernel;

namespace {

constexpr std::array<std::string_view, kStreams> kStreamNames = {"compute",
                                                                 "tensor parallel",
                                                                 "context parallel",
                                                                 "expert parallel",
                                                                 "data parallel",
                                                                 "send forward",
                                                                 "send backward",
                                                                 "receive forward",
                                                                 "receive backward",
                                                                 "send forward up",
                                                                 "send backward up",
                                                                 "receive forward up",
                                                                 "receive backward up",
                                                                 "gather parameters",
                                                                 "gather parameters 2",
                                                                 "across replicas",
                                                                 "host optimizer",
                                                                 "copy to host",
                                                                 "copy to device",
                                                                 "NVMe read",
                                                                 "NVMe write",
                                                                 "shard 2",
                                                                 "shard 3",
                                                                 "shard 4",
                                                                 "shard 5",
                                                                 "shard 6",
                                                                 "shard 7",
                                                                 "shard 8",
                                                                 "input",
                                                                 "agreement"};

bool on_compute_stream(const Op& op) {
  return op.stream == static_cast<std::uint8_t>(StreamKind::compute);
}

StreamSet without(StreamSet streams, StreamKind stream) {
  return static_cast<StreamSet>(streams & ~stream_bit(stream));
}

}  // namespace

ProgramBuilder::ProgramBuilder(Cast& cast, StageConnections& connections)
    : cast_(cast), connections_(connections) {
  for (const std::string_view stream : kStreamNames)
    program_.streams.edit().emplace_back(stream);
}

void ProgramBuilder::begin_block() {
  TRAINYARD_CHECK(ops_.empty() && segment_.empty(), "a block is open");
}

std::uint32_t ProgramBuilder::end_block() {
  // What no kernel of the block works on is taken at its end.
  if (!pending_holds_.empty()) settle(labels_.name(pending_holds_.back().owner));
  std::vector<engine::MemoryEffect>& effects = program_.effects.edit();
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].first_effect = static_cast<std::uint32_t>(effects.size());
    ops_[i].effects = static_cast<std::uint32_t>(op_effects_[i].size());
    effects.insert(effects.end(), op_effects_[i].begin(), op_effects_[i].end());
  }
  program_.blocks.edit().push_back({std::move(ops_)});
  ops_.clear();
  op_effects_.clear();
  return static_cast<std::uint32_t>(program_.blocks.size() - 1);
}

engine::MemoryEffect ProgramBuilder::effect(MemoryKind kind, std::int64_t bytes,
                                            const std::string& owner) {
  return {.bytes = bytes, .owner = labels_.of(owner), .category = static_cast<std::uint8_t>(kind)};
}

void ProgramBuilder::hold(MemoryKind kind, Bytes bytes, const std::string& owner) {
  if (bytes > Bytes(0)) pending_holds_.push_back(effect(kind, bytes.count(), owner));
}

void ProgramBuilder::release(MemoryKind kind, Bytes bytes, const std::string& owner) {
  if (bytes == Bytes(0)) return;
  settle(owner);
  for (std::size_t i = ops_.size(); i-- > 0;) {
    if (!on_compute_stream(ops_[i])) continue;
    op_effects_[i].push_back(effect(kind, -bytes.count(), owner));
    return;
  }
  TRAINYARD_CHECK(false, "no compute op gives back the memory of {}", owner);
}

void ProgramBuilder::resident(MemoryKind kind, Bytes bytes, const std::string& owner) {
  if (bytes > Bytes(0)) program_.resident.push_back(effect(kind, bytes.count(), owner));
}

void ProgramBuilder::last_takes(MemoryKind kind, Bytes bytes, const std::string& owner) {
  TRAINYARD_CHECK(!ops_.empty(), "no op takes the memory of {}", owner);
  if (bytes > Bytes(0)) op_effects_.back().push_back(effect(kind, bytes.count(), owner));
}

void ProgramBuilder::last_gives_back(MemoryKind kind, Bytes bytes, const std::string& owner) {
  TRAINYARD_CHECK(!ops_.empty(), "no op gives back the memory of {}", owner);
  if (bytes > Bytes(0)) op_effects_.back().push_back(effect(kind, -bytes.count(), owner));
}

void ProgramBuilder::work(std::span<const models::WorkItem> items, const std::string& where,
                          OpGroup group, PairPart part, bool drained) {
  const std::uint32_t at = labels_.where(where);
  for (const models::WorkItem& item : items) {
    if (const auto* named = std::get_if<NamedKernel>(&item)) {
      if (segment_.empty()) segment_first_ = named;
      segment_last_ = named;
      segment_.push_back(cast_.kernel_index(*named));
      segment_launches_ += named->launches;
    } else if (const auto* collective_item = std::get_if<models::GroupCollective>(&item)) {
      flush_segment(at, group, part);
      const ConnectionId connection = connections_.layer(collective_item->group);
      const StreamKind stream = cast_.connections[connection].stream;
      // A wait holds for what its stream has taken in so far. If a collective follows before any
      // kernel, the compute stream takes the wait first, as an op without kernels, so that the next
      // kernel does not wait for the new collective too.
      if ((pending_waits_ & kLayerStreams) != 0)
        settle_waits("wait for communication inside the layer");
      transfer(stream, connection,
               {collective_item->kind, collective_item->bytes, collective_item->routing},
               stream_bit(StreamKind::compute) | without(kLayerStreams, stream),
               labels_.of(at, ": " + collective_item->name), part, 1);
    } else {
      flush_segment(at, group, part);
      const ConnectionId awaited = connections_.layer(std::get<models::GroupWait>(item).group);
      compute_waits_for(stream_bit(cast_.connections[awaited].stream));
    }
  }
  flush_segment(at, group, part);
  if (drained) ops_.back().drained = true;
}

void ProgramBuilder::layer_work(std::span<const models::WorkItem> items, const std::string& where,
                                OpGroup group, PairPart part) {
  const ScriptKey key{items.data(), items.size(), group, part, pending_waits_};
  const auto known = scripts_.find(key);
  if (known == scripts_.end()) {
    const std::size_t first = ops_.size();
    labels_.names_places = false;
    work(items, where, group, part);
    labels_.names_places = true;
    scripts_.emplace(key, Script(std::span(ops_).subspan(first), program_, labels_,
                                 labels_.where(where), pending_waits_));
    return;
  }
  const std::uint32_t at = labels_.where(where);
  for (const Script::Written& written : known->second.ops) {
    push(written.op, written.is_named ? labels_.of(at, written.what) : written.op.label);
    if (!written.may_hold) continue;
    op_effects_.back() = std::move(pending_holds_);
    pending_holds_.clear();
  }
  pending_waits_ = known->second.waits;
}

ProgramBuilder::Script::Script(std::span<const Op> of, const engine::Program& program,
                               const LabelIndex& labels, std::uint32_t where,
                               StreamSet waits_behind)
    : waits(waits_behind) {
  for (const Op& op : of) {
    const engine::Labels::Parts& label = labels.parts(op.label);
    TRAINYARD_CHECK(label.where == where || label.where == engine::Labels::kNothing,
                    "a layer's work tells of a place that is not its own");
    ops.push_back(
        {.op = op,
         .is_named = label.where == where,
         .may_hold = op.kind == OpKind::compute && program.segments[op.subject].kernels > 0,
         .what = label.what});
  }
}

void ProgramBuilder::flush_segment(std::uint32_t where, OpGroup group, PairPart part) {
  if (segment_.empty()) return;
  const std::uint32_t subject = static_cast<std::uint32_t>(program_.segments.size());
  program_.segments.edit().push_back(
      {.first_kernel = static_cast<std::uint32_t>(program_.kernels.size()),
       .kernels = static_cast<std::uint32_t>(segment_.size())});
  std::vector<std::uint32_t>& kernels = program_.kernels.edit();
  kernels.insert(kernels.end(), segment_.begin(), segment_.end());
  const std::string what =
      segment_.size() == 1 ? ": " + segment_first_->name
                           : fmt::format(": {} .. {}", segment_first_->name, segment_last_->name);
  if (segment_first_->repeated || segment_last_->repeated) group = OpGroup::recompute;
  push({.kind = OpKind::compute,
        .stream = static_cast<std::uint8_t>(StreamKind::compute),
        .group = static_cast<std::uint8_t>(group),
        .part = static_cast<std::uint8_t>(part),
        .waits = pending_waits_,
        .subject = subject,
        .launches = std::exchange(segment_launches_, 0)},
       labels_.of(where, what));
  op_effects_.back() = std::move(pending_holds_);
  pending_holds_.clear();
  pending_waits_ = 0;
  segment_.clear();
}

void ProgramBuilder::work_beside(StreamKind stream, const std::vector<NamedKernel>& kernels,
                                 StreamSet waits, OpGroup group, const std::string& label) {
  const auto subject = static_cast<std::uint32_t>(program_.segments.size());
  const auto count = static_cast<std::uint32_t>(kernels.size());
  program_.segments.edit().push_back(
      {.first_kernel = static_cast<std::uint32_t>(program_.kernels.size()), .kernels = count});
  for (const NamedKernel& named : kernels)
    program_.kernels.edit().push_back(cast_.kernel_index(named));
  push({.kind = OpKind::compute,
        .stream = static_cast<std::uint8_t>(stream),
        .group = static_cast<std::uint8_t>(group),
        .waits = waits,
        .subject = subject,
        .launches = count},
       labels_.of(label));
}

void ProgramBuilder::collective(StreamKind stream, ConnectionId connection,
                                const TransferSpec& spec, StreamSet waits, const std::string& label,
                                PairPart part, std::uint32_t launches) {
  transfer(stream, connection, spec, waits, labels_.of(label), part, launches);
}

void ProgramBuilder::transfer(StreamKind stream, ConnectionId connection, const TransferSpec& spec,
                              StreamSet waits, std::uint32_t label, PairPart part,
                              std::uint32_t launches) {
  push({.kind = OpKind::collective,
        .stream = static_cast<std::uint8_t>(stream),
        .group = static_cast<std::uint8_t>(cast_.connections[connection].group),
        .part = static_cast<std::uint8_t>(part),
        .waits = waits,
        .subject = cast_.transfer_index(connection, spec),
        .port = port_of(connection),
        .launches = launches,
        .call = launches == 0 ? Duration(0) : connections_.call_time(connection, spec.kind)},
       label);
}

void ProgramBuilder::host_transfer(HostTransfer transfer, Bytes bytes, StreamSet waits,
                                   const std::string& label) {
  const ConnectionId connection = connections_.host(transfer);
  const StreamKind stream = cast_.connections[connection].stream;
  collective(stream, connection, {CollectiveKind::broadcast, bytes}, without(waits, stream), label);
}

void ProgramBuilder::mark(StreamKind stream, StreamSet waits, const std::string& label,
                          std::uint32_t launches) {
  program_.segments.edit().push_back(
      {.first_kernel = static_cast<std::uint32_t>(program_.kernels.size())});
  push({.kind = OpKind::compute,
        .stream = static_cast<std::uint8_t>(stream),
        .group = static_cast<std::uint8_t>(OpGroup::compute),
        .waits = waits,
        .subject = static_cast<std::uint32_t>(program_.segments.size() - 1),
        .launches = launches},
       labels_.of(label));
}

engine::Program ProgramBuilder::finish() {
  StreamSet used = stream_bit(StreamKind::compute);
  for (const engine::Block& block : program_.blocks)
    for (const Op& op : block.ops)
      used |= op.waits | 1U << op.stream;
  program_.labels = labels_.finish();
  program_.streams.edit().resize(static_cast<std::size_t>(std::bit_width(used)));
  return std::move(program_);
}

void ProgramBuilder::settle_waits(const std::string& label) {
  if (pending_waits_ == 0) return;
  mark(StreamKind::compute, pending_waits_, label);
  pending_waits_ = 0;
}

void ProgramBuilder::settle(const std::string& label) {
  const bool computes = std::any_of(ops_.begin(), ops_.end(), on_compute_stream);
  if (computes && pending_holds_.empty()) return;
  mark(StreamKind::compute, pending_waits_, label);
  op_effects_.back() = std::move(pending_holds_);
  pending_holds_.clear();
  pending_waits_ = 0;
}

void ProgramBuilder::send(ConnectionId connection, Bytes bytes, const std::string& label,
                          PairPart part, StreamSet waits) {
  const Connection& own = cast_.connections[connection];
  push({.kind = OpKind::send,
        .stream = static_cast<std::uint8_t>(own.stream),
        .group = static_cast<std::uint8_t>(own.group),
        .part = static_cast<std::uint8_t>(part),
        .waits = waits,
        .subject = cast_.transfer_index(connection, {CollectiveKind::broadcast, bytes}),
        .port = send_port(connection),
        .launches = 1},
       labels_.of(label));
}

void ProgramBuilder::receive(ConnectionId connection, Bytes bytes, const std::string& label,
                             PairPart part) {
  const Connection& own = cast_.connections[connection];
  const bool hears = own.heard_first > 0;
  push({.kind = hears ? OpKind::hear : OpKind::receive,
        .stream = static_cast<std::uint8_t>(own.arrives_on),
        .group = static_cast<std::uint8_t>(own.group),
        .part = static_cast<std::uint8_t>(part),
        .subject = cast_.transfer_index(connection, {CollectiveKind::broadcast, bytes}),
        .port = hears ? port_of(connection) : receive_port(connection),
        .launches = 1},
       labels_.of(label));
  compute_waits_for(stream_bit(own.arrives_on));
}

void ProgramBuilder::call(std::uint32_t block, std::uint32_t tag) {
  program_.calls.push_back({block, tag});
}

Op& ProgramBuilder::push(Op op, std::uint32_t label) {
  op.label = label;
  ops_.push_back(op);
  op_effects_.emplace_back();
  return ops_.back();
}

}  // namespace trainyard::plan
