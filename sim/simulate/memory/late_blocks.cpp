#include "sim/simulate/memory/late_blocks.h"

#include <algorithm>
#include <deque>

#include "sim/base/divide.h"

namespace trainyard::simulate {

using engine::Op;
using plan::CallKind;

namespace {

struct Block {
  std::int64_t launch = 0;  // of its collective, from the begin of the step
  std::int64_t bytes = 0;
};

bool is_forward(const plan::CallInfo& call, const Op& op) {
  if (call.kind == CallKind::pair)
    return static_cast<plan::PairPart>(op.part) == plan::PairPart::forward;
  return call.kind == CallKind::forward;
}

// Of a collective inside a layer, of which the script frees one end soon after; else 0.
std::int64_t freed_bytes(const plan::Cast& cast, const plan::CallInfo& call, const Op& op,
                         bool keeps_gathered_inputs) {
  if (op.kind != engine::OpKind::collective ||
      static_cast<plan::StreamKind>(op.stream) != plan::StreamKind::tensor)
    return 0;
  const plan::TransferSpec& transfer = cast.transfer(op);
  switch (transfer.kind) {
    case CollectiveKind::all_gather:
      return keeps_gathered_inputs && is_forward(call, op) ? 0 : transfer.bytes.count();
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_reduce: return transfer.bytes.count();
    default: return 0;
  }
}

// What the script holds from op to op, and what comes back to it late.
class Script {
 public:
  Script(const engine::Program& program, std::int64_t ahead) : program_(program), ahead_(ahead) {}

  void take(const Op& op, std::int64_t freed) {
    if (op.drained) forget_all();
    launches_ += op.launches;
    change(op, true);
    if (freed > 0) {
      late_.push_back({launches_, freed});
      late_bytes_ += freed;
    }
    while (!late_.empty() && launches_ - late_.front().launch >= ahead_) {
      late_bytes_ -= late_.front().bytes;
      late_.pop_front();
    }
    most_ = std::max(most_, level_);
    most_with_late_ = std::max(most_with_late_, level_ + late_bytes_);
    change(op, false);
  }
  Bytes late_at_most() const { return Bytes(most_with_late_ - most_); }

 private:
  void forget_all() {
    late_.clear();
    late_bytes_ = 0;
  }
  void change(const Op& op, bool takes) {
    for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e)
      if ((program_.effects[e].bytes > 0) == takes) level_ += program_.effects[e].bytes;
  }

  const engine::Program& program_;
  std::int64_t ahead_, launches_ = 0;
  std::int64_t level_ = 0, most_ = 0, most_with_late_ = 0;  // beside what is resident
  std::deque<Block> late_;
  std::int64_t late_bytes_ = 0;
};

}  // namespace

std::int64_t launches_ahead(const engine::Program& program, Duration launch, Duration end) {
  std::int64_t launches = 0;
  Duration host{};
  for (const engine::Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops) {
      launches += op.launches;
      host += op.call + std::int64_t{op.launches} * launch;
    }
  if (host >= end) return 0;
  return static_cast<std::int64_t>(static_cast<Int128>(launches) * (end - host).count() /
                                   end.count());
}

Bytes late_blocks(const plan::Cast& cast, const plan::Role& role, std::int64_t ahead,
                  bool keeps_gathered_inputs) {
  Script script(role.program, ahead);
  for (std::size_t i = 0; i < role.program.calls.size(); ++i)
    for (const Op& op : role.program.blocks[role.program.calls[i].block].ops)
      script.take(op, freed_bytes(cast, role.calls[i], op, keeps_gathered_inputs));
  return script.late_at_most();
}

}  // namespace trainyard::simulate
