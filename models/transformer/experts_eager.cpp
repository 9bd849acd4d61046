// Experts by PyTorch's operators. R is all rows that tokens send to experts, r h numbers; H the q
// tokens, q h; F and 2F what the experts' first products give of one half and of both; "r" read,
// "w" written.
//
//                     expert_products joint (torch._grouped_mm)  separate (a loop over experts)
//   router            product; softmax to fp32; top-k, sum, division, to 16 bits: 5 small
//   dispatch          two sorts, indices, counts: 34 small       6 small, 8 for each expert
//                     rows copied from tokens R w, again in      rows copied, r w of each
//                     the order of experts r w
//   experts           product; activation of a half F r w,       the same, a kernel for each; with
//                     its product with the other 2r w; product   gate_projection separate a product
//                                                                for each half
//   combine           rows by weights R r w; back in order r w;  rows by weights r w, added to the
//                     their sum R r, H w                         tokens 2r w
//   backward
//     combine         copies of the sum's gradient R w; of the   rows of the gradient r w
//                     order 0 w, 2r w;
//                     by weights r w; by rows 2r w, summed r     the same
//     experts         two products; 2 x (2r w), activation 2r w  the same, a kernel for each; of
//     two
//                     of F, halves joined 2F r w; two            products for the halves the sum of
//                                                                their inputs' gradients instead
//     dispatch        of both copies, R 0 w, R 2r w and          each expert: all of H 0 w, its
//                     H 0 w, R r H r w                           rows 2r w, and their sum, 2H r w
//     router          8 small, softmax, two products; the sum of both gradients of H
//
// Indices have 8 bytes, and what handles one for each row takes as long as a kernel does. A sort is
// of 12 kernels (cub's radix sort has a histogram, a scan and 8 passes over 8 bits of a 64-bit
// key), and the gradient of an index sorts, too: 9 small kernels, zeros, and a kernel that adds up
// rows as that of an embedding. Biases (gpt-oss) are rows of their own, copied for each row and
// added, 2r w. A loop also waits for each expert's rows, as the host has to know how many there
// are, which is not counted: the host is what takes time in such loops anyway.
// Limits before the gate (gpt-oss): halves are slices with a stride, both cut to them, the gate
// scaled, its sigmoid, their product, one added to the other half, their product, 9r 7w of F;
// backward 45 with the slices' zeros and the sum of both.
// With expert parallelism rows are copied for the all-to-all and arranged behind it
// (ExpertsScript::arrange) in place of the second copy; a loop is of products and gates then.
// Rows that share their way (DeepEP) leave from where they are and come back added up, so that they
// are weighted at their experts, and neither copied nor added by operators.
//
// Source: huggingface/transformers@8b584a67 src/transformers/integrations/moe.py,
// grouped_mm_experts_forward and _apply_gate of models/gpt_oss/modeling_gpt_oss.py; the loop,
// @00d4b3d2 src/transformers/models/qwen3_moe/modeling_qwen3_moe.py, Qwen3MoeSparseMoeBlock;
// PyTorch's derivatives.yaml and aten/src/ATen/native/cuda/{Sort,Indexing}.cu.
#include "models/transformer/experts.h"
#include "models/transformer/experts_script.h"
#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

// The host calls an operator; what a sort or the gradient of an index launches beside follows at
// once.
constexpr int kSort = 12;

// How often an operator on one half of what experts' first products give reads and writes it, and
// a byte for each of its numbers.
struct HalfOperator {
  const char* name;
  int read, written;
  int truths_read = 0, truths_written = 0;
  bool strided = false;
};

constexpr HalfOperator kLimitedGate[] = {{"gate within its limit", 1, 1, 0, 0, true},
                                         {"up within limits", 1, 1, 0, 0, true},
                                         {"gate scaled", 1, 1},
                                         {"sigmoid", 1, 1},
                                         {"gate by sigmoid", 2, 1},
                                         {"up plus one", 1, 1},
                                         {"gate", 2, 1}};

constexpr HalfOperator kLimitedGateGradient[] = {{"gradient of gate by sigmoid", 2, 1},
                                                 {"gradient of up", 2, 1},
                                                 {"gradient of the gate", 2, 1},
                                                 {"gradient of the sigmoid", 2, 1},
                                                 {"sigmoid backward", 2, 1},
                                                 {"gradient scaled", 1, 1},
                                                 {"sum of the gate's gradients", 2, 1},
                                                 {"gate below its limit", 1, 0, 0, 1, true},
                                                 {"gate gradient within its limit", 1, 1, 1, 0},
                                                 {"up above its limit", 1, 0, 0, 1, true},
                                                 {"up below its limit", 1, 0, 0, 1, true},
                                                 {"up within both", 0, 0, 2, 1},
                                                 {"up gradient within limits", 1, 1, 1, 0},
                                                 {"zeros around the gate", 0, 2},
                                                 {"gate into its slice", 1, 1, 0, 0, true},
                                                 {"zeros around up", 0, 2},
                                                 {"up into its slice", 1, 1, 0, 0, true},
                                                 {"sum of slices", 4, 2}};

}  // namespace

void RowOperators::write(const std::string& name, const MemoryBound& kernel, std::int64_t launches,
                         Of of) {
  const auto count = static_cast<std::uint32_t>(launches);
  if (of == Of::senders) return list_.kernel(name, kernel, count);
  list_.routed_kernel(name, kernel, of == Of::weights, count);
}

void RowOperators::small(const std::string& name, const Small& each, Of of) {
  const Bytes moved = each.kernels * number_of_each();
  write(name,
        MemoryBound{.op = MemoryOp::elementwise,
                    .read = moved,
                    .written = moved,
                    .kernels = each.kernels * calls(of)},
        each.operators * calls(of), of);
}

void RowOperators::on_rows(const std::string& name, MemoryOp op, Bytes read, Bytes written, Of of,
                           std::int64_t one_by_one) {
  write(
      name,
      MemoryBound{
          .op = op, .read = read, .written = written, .elements = one_by_one, .kernels = calls(of)},
      calls(of), of);
}

void RowOperators::index_gradient(const std::string& name, Bytes chosen, Bytes into, Of of) {
  const bool each = calls(of) > 1;
  const Bytes place = each ? chosen : into;
  small(name + " order", kIndexGradient, of);
  on_rows(name + " zeros", MemoryOp::elementwise, Bytes(0), calls(of) * into, of);
  on_rows(name, MemoryOp::embedding, chosen + place, place, of);
}

void EagerExperts::route() {
  list_.kernel("router", Gemm{s_.shard_tokens, s_.moe.experts, s_.hidden, 1, s_.stored});
  const Bytes scores = rows(s_.shard_tokens, s_.moe.experts);
  pass("router softmax", MemoryOp::softmax, scores, probabilities());
  constexpr std::int64_t kChoice = 5;
  list_.kernel("router choice",
               MemoryBound{.op = MemoryOp::elementwise,
                           .read = probabilities(),
                           .written = kChoice * number_of_each(),
                           .kernels = kChoice},
               kChoice);
}

void EagerExperts::route_gradient() {
  constexpr std::int64_t kChoice = 8;
  list_.kernel("router choice backward",
               MemoryBound{.op = MemoryOp::elementwise,
                           .read = kChoice * number_of_each(),
                           .written = probabilities(),
                           .kernels = kChoice},
               kChoice);
  pass("router softmax backward", MemoryOp::softmax, 2 * probabilities(),
       rows(s_.shard_tokens, s_.moe.experts));
  router_gradients();
  pass("router gradient sum", MemoryOp::elementwise, 2 * tokens(), tokens());
}

void EagerExperts::copies() {
  constexpr std::int64_t kMask = 6;
  if (loops()) {
    list_.kernel("expert mask",
                 MemoryBound{.op = MemoryOp::elementwise,
                             .read = kMask * number_of_each(),
                             .written = s_.moe.experts * number_of_each(),
                             .kernels = kMask},
                 kMask);
    small("rows of expert", {.kernels = 8, .operators = 3});
    return on_rows("rows copied", MemoryOp::permutation, sent(), sent());
  }
  small("rows by expert", {.kernels = 2 * kSort + 10, .operators = 9});
  on_rows("rows copied", MemoryOp::permutation, tokens(), sent());
  if (!s_.expert_parallel) on_rows("rows in order", MemoryOp::permutation, sent(), sent());
}

void EagerExperts::dispatch() {
  if (!share_their_way()) copies();
  travel("dispatch", true);
  arrange("dispatch by expert", true);
}

void EagerExperts::dispatch_gradient() {
  arrange("dispatch gradient by sender", false);
  travel("dispatch gradient", false);
  if (share_their_way()) return;
  if (!loops() && !s_.expert_parallel) index_gradient("rows in order backward", sent(), sent());
  index_gradient("rows copied backward", sent(), tokens());
  const std::int64_t sums = calls(Of::senders) - 1;
  if (sums > 0)
    list_.kernel("rows gradient sum",
                 MemoryBound{.op = MemoryOp::elementwise,
                             .read = 2 * sums * tokens(),
                             .written = sums * tokens(),
                             .kernels = sums},
                 static_cast<std::uint32_t>(sums));
}

void EagerExperts::biases(const std::string& name, std::int64_t width, bool backward) {
  if (!s_.moe.biases) return;
  const Bytes all = rows(s_.expert_rows(), width);
  const Bytes each = rows(s_.local_experts, width);
  if (backward) return index_gradient(name + " bias gradient", all, each, Of::weights);
  on_rows(name + " bias of each row", MemoryOp::permutation, each, all, Of::experts);
  on_rows(name + " bias sum", MemoryOp::elementwise, 2 * all, all, Of::experts);
}

void EagerExperts::fc1() {
  if (halves_apart()) {
    for (const char* name : {"experts fc1 gate", "experts fc1 up"})
      products(name, grouped(s_.expert_ffn, s_.hidden));
  } else {
    ExpertsScript::fc1();
  }
  biases("experts fc1", s_.expert_fc1_width(), false);
}

void EagerExperts::fc1_gradient() {
  biases("experts fc1", s_.expert_fc1_width(), true);
  if (!halves_apart()) return ExpertsScript::fc1_gradient();
  for (const std::string name : {"experts fc1 gate", "experts fc1 up"}) {
    products(name + " input gradient", grouped(s_.hidden, s_.expert_ffn));
    products(name + " weight gradient", grouped_weights(s_.expert_ffn, s_.hidden), true);
  }
  const Bytes inputs = rows(s_.expert_rows(), s_.hidden);
  on_rows("experts input gradient sum", MemoryOp::elementwise, 2 * inputs, inputs, Of::experts);
}

void EagerExperts::limited_gate(bool backward) {
  const std::int64_t numbers = s_.expert_rows() * s_.expert_ffn;
  const auto run = [&](const HalfOperator& one) {
    on_rows(std::string("experts ") + one.name, MemoryOp::elementwise,
            one.read * half() + one.truths_read * Bytes(numbers),
            one.written * half() + one.truths_written * Bytes(numbers), Of::experts,
            one.strided ? numbers : 0);
  };
  if (backward)
    for (const HalfOperator& one : kLimitedGateGradient)
      run(one);
  else
    for (const HalfOperator& one : kLimitedGate)
      run(one);
}

// On the rows of the rank's experts as on a feed-forward layer's.
void EagerExperts::gelu(bool backward) {
  TransformerSlice all = s_;
  all.tokens = s_.expert_rows();
  all.ffn = s_.expert_ffn;
  PytorchScript script(list_, all);
  gelu_by_operators(script, all, backward);
}

void EagerExperts::activation() {
  if (s_.moe.clamped) return limited_gate(false);
  if (runs_gelu_by_operators(s_)) return gelu(false);
  on_rows("experts activation", MemoryOp::activation, half(), half(), Of::experts);
  if (squares(s_)) on_rows("experts square", MemoryOp::elementwise, half(), half(), Of::experts);
  if (gated(s_)) on_rows("experts gate", MemoryOp::elementwise, 2 * half(), half(), Of::experts);
}

void EagerExperts::activation_gradient() {
  if (s_.moe.clamped) return limited_gate(true);
  if (runs_gelu_by_operators(s_)) return gelu(true);
  const auto run = [&](const char* name, MemoryOp op, Bytes read, Bytes written) {
    on_rows(name, op, read, written, Of::experts);
  };
  if (gated(s_)) {
    run("experts gate backward", MemoryOp::elementwise, 2 * half(), half());
    run("experts gate backward of the activation", MemoryOp::elementwise, 2 * half(), half());
  }
  if (squares(s_)) {
    run("experts square factor", MemoryOp::elementwise, half(), half());
    run("experts square backward", MemoryOp::elementwise, 2 * half(), half());
  }
  run("experts activation backward", MemoryOp::activation, 2 * half(), half());
  if (gated(s_) && !halves_apart())
    run("experts gradients of halves joined", MemoryOp::elementwise, 2 * half(), 2 * half());
}

void EagerExperts::fc2() {
  ExpertsScript::fc2();
  biases("experts fc2", s_.hidden, false);
}

void EagerExperts::fc2_gradient() {
  biases("experts fc2", s_.hidden, true);
  ExpertsScript::fc2_gradient();
}

// Before they are added up: where rows share their way, at their experts.
void EagerExperts::weights() {
  const Of of = share_their_way() ? Of::experts : Of::senders;
  const std::int64_t numbers = weighted_rows(s_) * s_.hidden;
  const Bytes all = rows(weighted_rows(s_), s_.hidden);
  on_rows("rows by weights", MemoryOp::elementwise, all, all, of, numbers);
}

void EagerExperts::weights_gradient() {
  const Of of = share_their_way() ? Of::experts : Of::senders;
  const std::int64_t numbers = weighted_rows(s_) * s_.hidden;
  const Bytes all = rows(weighted_rows(s_), s_.hidden);
  on_rows("rows by weights backward", MemoryOp::elementwise, all, all, of, numbers);
  on_rows("weight gradient of each number", MemoryOp::elementwise, 2 * all, all, of);
  on_rows("weight gradients", MemoryOp::column_sum, all, Bytes(0), of);
  small("weights of rows backward", {kIndexGradient.kernels + 2, kIndexGradient.operators + 1});
}

void EagerExperts::combine() {
  if (share_their_way()) weights();
  arrange("combine by sender", false);
  travel("combine", false);
  if (share_their_way()) return;
  weights();
  if (loops()) {
    pass("combine zeros", MemoryOp::elementwise, Bytes(0), tokens());
    return on_rows("rows added to tokens", MemoryOp::embedding, 2 * sent(), sent());
  }
  on_rows("rows back in order", MemoryOp::permutation, sent(), sent());
  pass("combine sum", MemoryOp::elementwise, sent(), tokens());
}

void EagerExperts::combine_gradient() {
  if (share_their_way()) {
    travel("combine gradient", true);
    arrange("combine gradient by expert", true);
    return weights_gradient();
  }
  if (loops()) {
    on_rows("rows of the gradient", MemoryOp::permutation, sent(), sent());
  } else {
    pass("combine sum backward", MemoryOp::elementwise, tokens(), sent());
    index_gradient("rows back in order backward", sent(), sent());
  }
  weights_gradient();
  travel("combine gradient", true);
  arrange("combine gradient by expert", true);
}

std::int64_t weighted_rows(const TransformerSlice& s) {
  return eager(s) && s.routing.experts > 0 ? s.expert_rows() : s.routed_rows;
}

void add_eager_experts(LayerScript& script, const TransformerSlice& slice) {
  using P = PieceKind;
  using Pass = void (EagerExperts::*)();
  const auto add = [&](P kind, Pass forward, Pass backward) {
    const auto play = [](Pass pass) {
      return [pass](WorkList& list, const TransformerSlice& s) { (EagerExperts(list, s).*pass)(); };
    };
    add_piece(script, kind, slice, play(forward), play(backward));
  };
  using E = EagerExperts;
  add(P::router, &E::route, &E::route_gradient);
  add(P::dispatch, &E::dispatch, &E::dispatch_gradient);
  add(P::experts_fc1, &E::fc1, &E::fc1_gradient);
  add(P::experts_activation, &E::activation, &E::activation_gradient);
  add(P::experts_fc2, &E::fc2, &E::fc2_gradient);
  add(P::combine, &E::combine, &E::combine_gradient);
}

}  // namespace trainyard::models
