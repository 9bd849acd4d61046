// A mixture of experts on one rank. q tokens of the rank (those outside the tensor-parallel
// regions), k experts for each, E experts dealt to e ranks; t' ranks of an expert-tensor group
// divide each expert's columns.
//
//   router          q x E product, softmax and top-k
//   dispatch        rows sorted by expert, all-to-all of q k rows to the ranks of their experts,
//                   gathered in the expert-tensor group
//   experts         two products per expert: r = q k t' rows in all when the load is even
//   combine         reduced and scattered in the expert-tensor group, all-to-all back, weighted sum
//   shared experts  a dense feed-forward layer that every token visits, beside the routed ones
//
//   Bytes per rank and direction pass: 2 (e-1)/e q k h d for dispatch and combine together. With
//   hierarchical dispatch a token travels once for each rank of its experts (parts_visited), is
//   copied there for each of them, and its results are added up there before they travel back.
//   With a capacity factor c an expert takes c times its even share and no more: r = c q k t', the
//   rest of the slots being padding. Without one no token is dropped.
//   Biases are part of the products; or fc2's are added by PyTorch's operators, E/e at a time, as
//   what leaves the experts is weighted already: b p, the sum and the rows joined again, 3r 3w of
//   r h numbers; backward gradients joined, g p and g b, each written and summed, 5r 3w.
//   Limits of both halves before the gate (clamps) are part of its kernel; or each half is cut to
//   them, and both are joined again, 2 of r f and 1 of r 2f numbers; backward the gradient of each
//   is put to zero where a comparison says so, one of the first half and two of the second, and
//   both are joined.
//   The rows of a rank whose experts are called more often than others are the plan's matter: its
//   kernels here are those of even load.
// Source: Lepikhin et al., GShard, 2020; Fedus et al., Switch Transformers, 2021, section 2.2
// (capacity); Megatron-LM's MoELayer with the all-to-all dispatcher, its TEGroupedMLP._apply_bias
// and weighted_bias_quick_geglu_impl; PyTorch's clamp_backward; DeepSeek-V3, 2024 (shared).
#include "models/transformer/experts.h"

#include "models/transformer/experts_script.h"

namespace trainyard::models {

void ExpertsScript::route() {
  const std::int64_t experts = s_.moe.experts;
  list_.kernel("router", Gemm{s_.shard_tokens, experts, s_.hidden, 1, s_.stored});
  const Bytes scores = s_.shard_tokens * experts * size_of(Dtype::fp32);
  pass("router softmax and top-k", MemoryOp::softmax, scores, scores);
}

void ExpertsScript::route_gradient() {
  const std::int64_t experts = s_.moe.experts;
  const Bytes scores = s_.shard_tokens * experts * size_of(Dtype::fp32);
  pass("router softmax backward", MemoryOp::softmax, 2 * scores, scores);
  router_gradients();
}

void ExpertsScript::router_gradients() {
  const std::int64_t experts = s_.moe.experts;
  list_.kernel("router input gradient", Gemm{s_.shard_tokens, s_.hidden, experts, 1, s_.stored});
  list_.weight_gradient("router weight gradient",
                        Gemm{experts, s_.hidden, s_.shard_tokens, 1, s_.stored});
}

// Rows are copied once for each of a token's experts, or summed over them. Those that share their
// way leave from where they are, and arrive added up.
void ExpertsScript::sort(const std::string& name, bool one_to_many) {
  if (s_.routing.experts > 0) return;
  const Bytes tokens = rows(s_.shard_tokens, s_.hidden);
  const Bytes copies = rows(s_.routed_rows, s_.hidden);
  pass(name, MemoryOp::permutation, one_to_many ? tokens : copies, one_to_many ? copies : tokens);
}

// What arrives is sorted by sender; experts want it sorted by expert, and a row for each.
void ExpertsScript::arrange(const std::string& name, bool to_experts) {
  if (s_.local_experts == 1 || !s_.expert_parallel) return;
  const Bytes copies = rows(s_.expert_rows(), s_.hidden);
  const Bytes arriving = rows(s_.arriving_rows, s_.hidden);
  pass(name, MemoryOp::permutation, to_experts ? arriving : copies, to_experts ? copies : arriving);
}

void ExpertsScript::travel(const std::string& what, bool away) {
  const Bytes row = away ? s_.dispatched_row : s_.hidden * s_.element();
  const Bytes sent = s_.routed_rows * row;
  const Bytes gathered = s_.arriving_rows * row;
  const auto across = [&] {
    if (!s_.expert_parallel) return;
    list_.start(what + " all-to-all", CollectiveKind::all_to_all, sent, LayerGroup::expert,
                s_.routing);
    list_.wait(LayerGroup::expert);
  };
  if (away) across();
  if (s_.expert_tensor > 1) {
    list_.start(what + (away ? " all-gather" : " reduce-scatter"),
                away ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter, gathered,
                LayerGroup::expert_tensor);
    list_.wait(LayerGroup::expert_tensor);
  }
  if (!away) across();
}

void ExpertsScript::fc1() {
  products("experts fc1", grouped(s_.expert_fc1_width(), s_.hidden));
}

void ExpertsScript::of_half(const std::string& what, Bytes read_of_each, Bytes written_of_each) {
  const std::int64_t numbers = s_.expert_rows() * s_.expert_ffn;
  list_.routed_kernel("experts " + what, MemoryBound{.op = MemoryOp::elementwise,
                                                     .read = numbers * read_of_each,
                                                     .written = numbers * written_of_each,
                                                     .elements = numbers});
}

void ExpertsScript::halves_joined(const char* what) {
  const Bytes both = rows(s_.expert_rows(), s_.expert_fc1_width());
  list_.routed_kernel(what, MemoryBound{MemoryOp::elementwise, both, both});
}

void ExpertsScript::clamped() {
  const Bytes number = s_.element();
  of_half("gate within limits", number, number);
  of_half("up within limits", number, number);
  halves_joined("experts limited halves joined");
}

void ExpertsScript::clamped_gradient() {
  const Bytes number = s_.element(), truth(1);
  const Bytes truths = s_.expert_rows() * s_.expert_ffn * truth;
  of_half("gate below its limit", number, truth);
  of_half("gate gradient within limits", number + truth, number);
  of_half("up above its limit", number, truth);
  of_half("up below its limit", number, truth);
  list_.routed_kernel("experts up within both",
                      MemoryBound{MemoryOp::elementwise, 2 * truths, truths});
  of_half("up gradient within limits", number + truth, number);
  halves_joined("experts gradients of halves joined");
}

void ExpertsScript::activation() {
  if (clamps_by_operators(s_)) clamped();
  list_.routed_kernel(
      "experts activation",
      MemoryBound{s_.expert_activation_op(), rows(s_.expert_rows(), s_.expert_fc1_width()),
                  rows(s_.expert_rows(), s_.expert_ffn)});
  if (s_.casts_gates())
    list_.routed_kernel(
        "experts gates kept",
        MemoryBound{MemoryOp::elementwise, rows(s_.expert_rows(), s_.expert_fc1_width()),
                    s_.kept_gate_bytes(s_.expert_rows(), s_.expert_fc1_width())});
}

void ExpertsScript::fc2_biases() {
  const Bytes all = rows(s_.expert_rows(), s_.hidden);
  const auto each = [&](const char* what, Bytes read) {
    list_.routed_kernel(
        std::string("experts fc2 bias") + what,
        MemoryBound{
            .op = MemoryOp::elementwise, .read = read, .written = all, .kernels = s_.local_experts},
        false, launches_of_all());
  };
  each(" weighted", Bytes(0));
  each(" sum", 2 * all);
  list_.routed_kernel("experts fc2 rows joined", MemoryBound{MemoryOp::elementwise, all, all});
}

void ExpertsScript::fc2_bias_gradients() {
  const Bytes all = rows(s_.expert_rows(), s_.hidden);
  list_.routed_kernel("experts fc2 gradients joined", MemoryBound{MemoryOp::elementwise, all, all});
  const auto each = [&](const char* what, MemoryOp op, Bytes written, bool of_bias) {
    list_.routed_kernel(
        std::string("experts fc2 ") + what,
        MemoryBound{.op = op, .read = all, .written = written, .kernels = s_.local_experts},
        of_bias, launches_of_all());
  };
  each("bias gradient of each row", MemoryOp::elementwise, all, true);
  each("bias gradient", MemoryOp::column_sum, Bytes(0), true);
  each("probability gradient of each number", MemoryOp::elementwise, all, false);
  each("probability gradient", MemoryOp::elementwise, Bytes(0), false);
}

void ExpertsScript::fc2() {
  products("experts fc2", grouped(s_.hidden, s_.expert_ffn));
  if (adds_biases()) fc2_biases();
}

void ExpertsScript::fc2_gradient() {
  if (adds_biases()) fc2_bias_gradients();
  products("experts fc2 input gradient", grouped(s_.expert_ffn, s_.hidden));
  products("experts fc2 weight gradient", grouped_weights(s_.hidden, s_.expert_ffn), true);
}

void ExpertsScript::activation_gradient() {
  const Bytes input = rows(s_.expert_rows(), s_.expert_fc1_width());
  if (s_.casts_gates())
    list_.routed_kernel(
        "experts gates restored",
        MemoryBound{MemoryOp::elementwise,
                    s_.kept_gate_bytes(s_.expert_rows(), s_.expert_fc1_width()), input});
  list_.routed_kernel(
      "experts activation backward",
      MemoryBound{s_.expert_activation_op(), rows(s_.expert_rows(), s_.expert_ffn) + input, input});
  if (clamps_by_operators(s_)) clamped_gradient();
}

void ExpertsScript::fc1_gradient() {
  const std::int64_t width = s_.expert_fc1_width();
  products("experts fc1 input gradient", grouped(s_.hidden, width));
  products("experts fc1 weight gradient", grouped_weights(width, s_.hidden), true);
}

void add_experts(LayerScript& script, const TransformerSlice& slice) {
  const auto add = [&](PieceKind kind, auto forward, auto backward) {
    add_piece(
        script, kind, slice,
        [&](WorkList& list, const TransformerSlice& s) { forward(ExpertsScript(list, s)); },
        [&](WorkList& list, const TransformerSlice& s) { backward(ExpertsScript(list, s)); });
  };
  add(
      PieceKind::router, [](ExpertsScript s) { s.route(); },
      [](ExpertsScript s) { s.route_gradient(); });
  add(
      PieceKind::dispatch,
      [](ExpertsScript s) {
        s.sort("dispatch sort", true);
        s.travel("dispatch", true);
        s.arrange("dispatch by expert", true);
      },
      [](ExpertsScript s) {
        s.arrange("dispatch gradient by sender", false);
        s.travel("dispatch gradient", false);
        s.sort("dispatch sort backward", false);
      });
  add(
      PieceKind::experts_fc1, [](ExpertsScript s) { s.fc1(); },
      [](ExpertsScript s) { s.fc1_gradient(); });
  add(
      PieceKind::experts_activation, [](ExpertsScript s) { s.activation(); },
      [](ExpertsScript s) { s.activation_gradient(); });
  add(
      PieceKind::experts_fc2, [](ExpertsScript s) { s.fc2(); },
      [](ExpertsScript s) { s.fc2_gradient(); });
  add(
      PieceKind::combine,
      [](ExpertsScript s) {
        s.arrange("combine by sender", false);
        s.travel("combine", false);
        s.sort("combine sum", false);
      },
      [](ExpertsScript s) {
        s.sort("combine sum backward", true);
        s.travel("combine gradient", true);
        s.arrange("combine gradient by expert", true);
      });
}

TransformerSlice shared_experts(const TransformerSlice& s) {
  TransformerSlice shared = s;
  shared.ffn = s.shared_ffn;
  shared.fc1_width = gated(s) ? 2 * s.shared_ffn : s.shared_ffn;
  return shared;
}

void shared_gate(WorkList& list, const TransformerSlice& s, bool backward) {
  if (!s.moe.shared_gate) return;
  if (!backward) return list.kernel("shared gate", Gemm{s.shard_tokens, 1, s.hidden, 1, s.stored});
  list.kernel("shared gate input gradient", Gemm{s.shard_tokens, s.hidden, 1, 1, s.stored});
  list.weight_gradient("shared gate weight gradient",
                       Gemm{1, s.hidden, s.shard_tokens, 1, s.stored});
}

void order_mixture(LayerScript& script) {
  const auto at = [&](PieceKind kind) {
    std::size_t i = 0;
    while (i < script.pieces.size() && script.pieces[i].kind != kind)
      ++i;
    return i;
  };
  if (at(PieceKind::shared_sum) == script.pieces.size()) return;
  const auto down = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from + 1; i-- > to;)
      script.backward_order.push_back(i);
  };
  down(script.pieces.size() - 1, at(PieceKind::shared_sum) + 1);
  down(at(PieceKind::combine), at(PieceKind::router));
  down(at(PieceKind::shared_fc2), at(PieceKind::shared_fc1));
  script.backward_order.push_back(at(PieceKind::shared_sum));
  down(at(PieceKind::router) - 1, 0);
}

std::int64_t routed_parameters(const Transformer& network, int expert, int expert_tensor) {
  const std::int64_t columns = network.gated() ? 3 : 2;
  const std::int64_t experts = divide_up(network.moe.experts, expert);
  const std::int64_t width = network.moe.ffn_hidden / expert_tensor;
  const std::int64_t biases = network.moe.biases ? (columns - 1) * width + network.hidden : 0;
  return experts * (columns * network.hidden * width + biases);
}

std::int64_t unrouted_parameters(const Transformer& network, int tensor) {
  const std::int64_t columns = network.gated() ? 3 : 2;
  const Experts& moe = network.moe;
  const std::int64_t per_expert = (moe.biases ? 1 : 0) + (moe.balance_bias ? 1 : 0);
  return moe.experts * (network.hidden + per_expert) + (moe.shared_gate ? network.hidden : 0) +
         columns * network.hidden * (network.moe.shared_ffn_hidden / tensor);
}

double experts_products(const Transformer& network) {
  const std::int64_t columns = network.gated() ? 3 : 2;
  const std::int64_t width =
      network.moe.top_k * network.moe.ffn_hidden + network.moe.shared_ffn_hidden;
  return static_cast<double>(network.hidden) *
         static_cast<double>(network.moe.experts + columns * width +
                             (network.moe.shared_gate ? 1 : 0));
}

}  // namespace trainyard::models
