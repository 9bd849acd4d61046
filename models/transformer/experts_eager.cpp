// Experts by PyTorch's operators. R is all rows that tokens send to experts, r h numbers; H the q
// tokens, q h; F and 2F what the experts' first products give of one half and of both; "r" read,
// "w" written.
//
//                     expert_products joint (torch._grouped_mm)  separate (a loop over experts)
//   router            product; softmax to fp32; top-k, sum, division, to 16 bits: 5 small
//   dispatch          two sorts, indices, counts: 34 small       6 small, 8 for each expert
//                     rows copied from tokens R w, again in      rows copied, r w of each
//                     the order of experts r w
//   experts           product; activation of a half F r w,       the same, a kernel for each
//                     its product with the other 2r w; product
//   combine           rows by weights R r w; back in order r w;  rows by weights r w, added to the
//                     their sum R r, H w                         tokens 2r w
//   backward
//     combine         copies of the sum's gradient R w; of the   rows of the gradient r w
//                     order 0 w, 2r w;
//                     by weights r w; by rows 2r w, summed r     the same
//     experts         two products; 2 x (2r w), activation 2r w of F, halves joined 2F r w; two
//     dispatch        of both copies, R 0 w, R 2r w and          each expert: all of H 0 w, its
//                     H 0 w, R r H r w                           rows 2r w, and their sum, 2H r w
//     router          8 small, softmax, two products; the sum of both gradients of H
//
// Indices have 8 bytes, and what handles one for each row takes as long as a kernel does. A sort is
// of 12 kernels (cub's radix sort has a histogram, a scan and 8 passes over 8 bits of a 64-bit
// key), and the gradient of an index sorts, too: 9 small kernels, zeros, and a kernel that adds up
// rows as that of an embedding. Biases (gpt-oss) are rows of their own, copied for each row and
// added, 2r w; limits before the gate are operators (experts.cpp). A loop also waits for each
// expert's rows, as the host has to know how many there are, which is not counted: the host is what
// takes time in such loops anyway.
// With expert parallelism rows are copied for the all-to-all and arranged behind it
// (ExpertsScript::arrange) in place of the second copy, and only products are one for each expert.
// Rows that share their way (DeepEP) leave from where they are and come back added up, so that they
// are weighted at their experts, and neither copied nor added by operators.
//
// Source: huggingface/transformers@8b584a67 src/transformers/integrations/moe.py,
// grouped_mm_experts_forward, and the loop in its first comment; pytorch/torchtitan@0646ba46
// torchtitan/models/common/moe/moe.py, which copies rows once and weights them in fp32 before the
// experts; PyTorch's derivatives.yaml and aten/src/ATen/native/cuda/{Sort,Indexing}.cu.
#include "models/transformer/experts.h"
#include "models/transformer/experts_script.h"

namespace trainyard::models {
namespace {

// The host calls an operator; what a sort or the gradient of an index launches beside follows at
// once.
constexpr int kSort = 12;

}  // namespace

void RowOperators::small(const std::string& name, const Small& each) {
  const std::int64_t kernels = each.kernels * calls();
  const Bytes moved = each.kernels * number_of_each();
  list_.kernel(
      name,
      MemoryBound{.op = MemoryOp::elementwise, .read = moved, .written = moved, .kernels = kernels},
      static_cast<std::uint32_t>(each.operators * calls()));
}

void RowOperators::index_gradient(const std::string& name, Bytes chosen, Bytes into,
                                  bool of_biases) {
  const auto run = [&](const std::string& what, const MemoryBound& kernel) {
    of_biases ? arrived(what, kernel, true) : sent(what, kernel);
  };
  const Bytes place = loops() ? chosen : into;
  small(name + " order", kIndexGradient);
  run(name + " zeros", on_rows(MemoryOp::elementwise, Bytes(0), calls() * into));
  run(name, on_rows(MemoryOp::embedding, chosen + place, place));
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
  const std::int64_t experts = s_.moe.experts;
  list_.kernel("router input gradient", Gemm{s_.shard_tokens, s_.hidden, experts, 1, s_.stored});
  list_.weight_gradient("router weight gradient",
                        Gemm{experts, s_.hidden, s_.shard_tokens, 1, s_.stored});
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
    return sent("rows copied", on_rows(MemoryOp::permutation, sent_rows(), sent_rows()));
  }
  small("rows by expert", {.kernels = 2 * kSort + 10, .operators = 9});
  sent("rows copied", on_rows(MemoryOp::permutation, tokens(), sent_rows()));
  if (!s_.expert_parallel)
    sent("rows in order", on_rows(MemoryOp::permutation, sent_rows(), sent_rows()));
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
  if (!loops() && !s_.expert_parallel)
    index_gradient("rows in order backward", sent_rows(), sent_rows());
  index_gradient("rows copied backward", sent_rows(), tokens());
  if (loops() && calls() > 1)
    sent("rows gradient sum",
         on_rows(MemoryOp::elementwise, 2 * (calls() - 1) * tokens(), (calls() - 1) * tokens()));
}

void EagerExperts::biases(const std::string& name, std::int64_t width, bool backward) {
  if (!s_.moe.biases) return;
  const Bytes all = rows(s_.expert_rows(), width);
  const Bytes each = rows(s_.local_experts, width);
  if (backward) return index_gradient(name + " bias gradient", all, each, true);
  arrived(name + " bias of each row", on_rows(MemoryOp::permutation, each, all));
  arrived(name + " bias sum", on_rows(MemoryOp::elementwise, 2 * all, all));
}

void EagerExperts::fc1() {
  products("experts fc1", grouped(s_.expert_fc1_width(), s_.hidden));
  biases("experts fc1", s_.expert_fc1_width(), false);
}

void EagerExperts::fc1_gradient() {
  const std::int64_t width = s_.expert_fc1_width();
  biases("experts fc1", width, true);
  products("experts fc1 input gradient", grouped(s_.hidden, width));
  products("experts fc1 weight gradient", grouped_weights(width, s_.hidden), true);
}

void EagerExperts::activation() {
  if (s_.moe.clamped) clamped();
  const Bytes half = rows(s_.expert_rows(), s_.expert_ffn);
  arrived("experts activation", on_rows(MemoryOp::activation, half, half));
  if (gated(s_)) arrived("experts gate", on_rows(MemoryOp::elementwise, 2 * half, half));
}

void EagerExperts::activation_gradient() {
  const Bytes half = rows(s_.expert_rows(), s_.expert_ffn);
  if (gated(s_)) {
    arrived("experts gate backward", on_rows(MemoryOp::elementwise, 2 * half, half));
    arrived("experts gate backward of the activation",
            on_rows(MemoryOp::elementwise, 2 * half, half));
  }
  arrived("experts activation backward", on_rows(MemoryOp::activation, 2 * half, half));
  if (gated(s_) && !s_.moe.clamped)
    arrived("experts gradients of halves joined",
            on_rows(MemoryOp::elementwise, 2 * half, 2 * half));
  if (s_.moe.clamped) clamped_gradient();
}

void EagerExperts::fc2() {
  products("experts fc2", grouped(s_.hidden, s_.expert_ffn));
  biases("experts fc2", s_.hidden, false);
}

void EagerExperts::fc2_gradient() {
  biases("experts fc2", s_.hidden, true);
  products("experts fc2 input gradient", grouped(s_.expert_ffn, s_.hidden));
  products("experts fc2 weight gradient", grouped_weights(s_.hidden, s_.expert_ffn), true);
}

// Before they are added up: where rows share their way, at their experts.
void EagerExperts::weights() {
  const std::int64_t numbers = weighted_rows() * s_.hidden;
  const Bytes all = rows(weighted_rows(), s_.hidden);
  sent("rows by weights", on_rows(MemoryOp::elementwise, all, all, numbers));
}

void EagerExperts::weights_gradient() {
  const std::int64_t numbers = weighted_rows() * s_.hidden;
  const Bytes all = rows(weighted_rows(), s_.hidden);
  sent("rows by weights backward", on_rows(MemoryOp::elementwise, all, all, numbers));
  sent("weight gradient of each number", on_rows(MemoryOp::elementwise, 2 * all, all));
  sent("weight gradients", on_rows(MemoryOp::column_sum, all, Bytes(0)));
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
    return sent("rows added to tokens", on_rows(MemoryOp::embedding, 2 * sent_rows(), sent_rows()));
  }
  sent("rows back in order", on_rows(MemoryOp::permutation, sent_rows(), sent_rows()));
  pass("combine sum", MemoryOp::elementwise, sent_rows(), tokens());
}

void EagerExperts::combine_gradient() {
  if (share_their_way()) {
    travel("combine gradient", true);
    arrange("combine gradient by expert", true);
    return weights_gradient();
  }
  if (loops()) {
    sent("rows of the gradient", on_rows(MemoryOp::permutation, sent_rows(), sent_rows()));
  } else {
    pass("combine sum backward", MemoryOp::elementwise, tokens(), sent_rows());
    index_gradient("rows back in order backward", sent_rows(), sent_rows());
  }
  weights_gradient();
  travel("combine gradient", true);
  arrange("combine gradient by expert", true);
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
