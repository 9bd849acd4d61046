#include "models/transformer/finetune/adapter_script.h"

namespace trainyard::models {

namespace {

// Norms of an fp32 stream write fp32.
bool arrives_wide(bool columns, const TransformerSlice& s) {
  return columns && s.stream == Dtype::fp32;
}

}  // namespace

bool narrows_inputs(bool columns, const TransformerSlice& s, const Finetune& how) {
  return how.autocast && (arrives_wide(columns, s) || !how.quantises());
}

bool AdapterScript::widens(const Adapter& a) const {
  return narrows(a) && !arrives_wide(a.columns, s_);
}

void AdapterScript::forward(const Adapter& a) {
  const Bytes narrow_states = of(a.rank);
  const std::int64_t numbers = s_.tokens * a.inputs;
  if (widens(a)) widen(a.name + " input to fp32", numbers);
  if (how_.dropout)
    pass(a.name + " dropout", MemoryOp::dropout, dropped(a), dropped(a) + mask(a.inputs));
  if (narrows(a)) narrow(a.name + " input to 16 bits", numbers);
  if (how_.autocast) {
    narrow(a.name + " A to 16 bits", a.narrow * a.inputs);
    narrow(a.name + " B to 16 bits", a.outputs * a.rank);
  }
  list_.kernel(a.name + " A", product(a.narrow, a.inputs));
  exchange(a.name + (a.columns ? " all-gather" : " all-reduce"),
           a.columns ? CollectiveKind::all_gather : CollectiveKind::all_reduce, narrow_states);
  list_.kernel(a.name + " B", product(a.outputs, a.rank));
  if (!a.columns)
    exchange(a.name + " output all-gather", CollectiveKind::all_gather, s_.hidden_states());
  if (s_.kernels.fusion != Fusion::compiled)
    pass(a.name + " scale", MemoryOp::elementwise, sum(a), sum(a));
  pass(a.name + " sum", MemoryOp::elementwise, 2 * sum(a), sum(a));
}

void AdapterScript::backward(const Adapter& a, bool passes_on) {
  const Bytes input = of(a.inputs), narrow_states = of(a.rank);
  const std::int64_t numbers = s_.tokens * a.inputs;
  if (!a.columns && s_.sequence_parallel)
    exchange(a.name + " gradient all-gather", CollectiveKind::all_gather, s_.hidden_states());
  pass(a.name + " scale backward", MemoryOp::elementwise, sum(a), sum(a));
  list_.kernel(a.name + " B input gradient", product(a.rank, a.outputs));
  list_.weight_gradient(a.name + " B weight gradient", weights(a.outputs, a.rank));
  if (how_.autocast)
    list_.weight_gradient(a.name + " B weight gradient to fp32", widened(a.outputs * a.rank));
  exchange(a.name + " gradient all-reduce", CollectiveKind::all_reduce, narrow_states);
  // Transformer Engine adds the gradient of what it has gathered before it reduces its own;
  // autograd reduces both.
  const bool joins = s_.sequence_parallel && s_.kernels.fusion == Fusion::by_hand;
  if (passes_on) {
    list_.kernel(a.name + " A input gradient", product(a.inputs, a.narrow));
    if (a.columns && !joins)
      exchange(
          a.name + " input gradient " + (s_.sequence_parallel ? "reduce-scatter" : "all-reduce"),
          s_.sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
          s_.hidden_states());
  }
  list_.weight_gradient(a.name + " A weight gradient", weights(a.narrow, a.inputs));
  if (how_.autocast)
    list_.weight_gradient(a.name + " A weight gradient to fp32", widened(a.narrow * a.inputs));
  if (!passes_on) return;
  const bool scattered = a.columns && s_.sequence_parallel && !joins;
  const Bytes gradient = scattered ? s_.shard_tokens * s_.hidden * s_.element() : input;
  if (narrows(a)) widen(a.name + " input gradient to fp32", numbers);
  if (how_.dropout)
    pass(a.name + " dropout backward", MemoryOp::dropout, dropped(a) + mask(a.inputs), dropped(a));
  if (widens(a)) narrow(a.name + " input gradient to 16 bits", numbers);
  pass(a.name + " input gradient sum", MemoryOp::elementwise, 2 * gradient, gradient);
}

}  // namespace trainyard::models
