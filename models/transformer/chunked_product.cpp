// Matrix multiplications of a tensor-parallel layer in pieces, each hiding a piece of the
// collective that brings its input or takes its output away. Compute time C, communication time X,
// n pieces:
//
//   gather in n pieces   X/n + (n-1) max(X/n, C/n) + C/n
//   gather in a ring     a rank begins with its own part: t pieces of C/t and t-1 hops of X/(t-1),
//                        in all C/t + max((t-1) C/t, X)
//   scatter in n pieces  C/n + (n-1) max(X/n, C/n) + X/n
//
//   Domain: no less than max(C, X), no more than C + X, if pieces are as efficient as the whole;
//   here they are priced as the smaller matrices and messages that they are. Multiplications run
//   one after another, where Transformer Engine spreads them over up to three streams.
//   Backward, the gather of the gradient of proj and fc2 is cut the same way; the collectives of
//   qkv and fc1 hide whole behind the GEMM that does not need them ("bulk"; column_backward).
// Source: Transformer Engine, transformer_engine/pytorch/module/base.py, initialize_ub: which
// products are "ring_exchange", "pipeline" (4 splits) and "bulk"; Wang et al., Overlap
// Communication with Dependent Computation via Decomposition, ASPLOS 2023.
#include <fmt/format.h>

#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

// Piece number `piece`, from 0, of what has `size` in all.
std::int64_t part(std::int64_t size, std::int64_t piece, std::int64_t pieces) {
  return size * (piece + 1) / pieces - size * piece / pieces;
}

std::string piece_name(const std::string& name, std::int64_t piece, std::int64_t pieces) {
  return pieces == 1 ? name : fmt::format("{} {}/{}", name, piece + 1, pieces);
}

Gemm piece_of(Gemm product, std::int64_t piece, std::int64_t pieces) {
  product.m = part(product.m, piece, pieces);
  return product;
}

Bytes piece_of(Bytes bytes, std::int64_t piece, std::int64_t pieces) {
  return Bytes(part(bytes.count(), piece, pieces));
}

// Everybody hands on the part that came last, under the product with the part before.
void ring(WorkList& list, const TransformerSlice& s, const std::string& gather,
          const std::string& name, const Gemm& product) {
  const std::int64_t pieces = s.gather_pieces;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    if (piece > 0) list.wait();
    if (piece + 1 < pieces)
      list.start(piece_name(gather, piece, pieces - 1), CollectiveKind::shift, s.gathered_states());
    list.cast_product(piece_name(name, piece, pieces), piece_of(product, piece, pieces), piece);
  }
}

}  // namespace

void cut_products(TransformerSlice& s, const Execution& execution) {
  if (execution.tensor_parallel.overlap != TensorOverlap::chunked || !s.sequence_parallel) return;
  const int chunks = execution.tensor_parallel.chunks;
  s.gathers_in_ring = chunks == 0;
  s.gather_pieces = s.gathers_in_ring ? s.tensor : chunks;
  s.scatter_pieces = pieces_of_rows(execution);
}

void gathered_product(WorkList& list, const TransformerSlice& s, const std::string& gather,
                      const std::string& name, const Gemm& product) {
  const std::int64_t pieces = s.gather_pieces;
  // Forward, what is gathered is a norm's output.
  const bool cast_before = s.sequence_parallel && s.inputs == Dtype::fp8;
  list.casts_of(name, product, cast_before ? s.shard_tokens : product.m, !list.is_backward());
  if (s.gathers_in_ring) return ring(list, s, gather, name, product);
  if (pieces == 1) {
    gather_inputs(list, s, gather);
    list.cast_product(name, product);
    return;
  }
  const auto bytes = [&](std::int64_t piece) {
    return piece_of(s.gathered_states(), piece, pieces);
  };
  list.start(piece_name(gather, 0, pieces), CollectiveKind::all_gather, bytes(0));
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    // The wait is for this piece: the next one is enqueued behind it.
    list.wait();
    if (piece + 1 < pieces)
      list.start(piece_name(gather, piece + 1, pieces), CollectiveKind::all_gather,
                 bytes(piece + 1));
    list.cast_product(piece_name(name, piece, pieces), piece_of(product, piece, pieces), piece);
  }
}

void reduced_product(WorkList& list, const TransformerSlice& s, const std::string& name,
                     const Gemm& product) {
  const std::int64_t pieces = s.scatter_pieces;
  list.casts_of(name, product, product.m, false);
  if (pieces == 1) {
    list.cast_product(name, product);
    reduce_partial_sums(list, s, name);
    return;
  }
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    list.cast_product(piece_name(name, piece, pieces), piece_of(product, piece, pieces), piece);
    list.start(piece_name(name + " reduce-scatter", piece, pieces), CollectiveKind::reduce_scatter,
               piece_of(s.hidden_states(), piece, pieces));
  }
  list.wait();
}

// One for each of qkv, proj, fc1 and fc2 forward, for the input gradients of the four and for the
// weight gradients of qkv and fc1, of all tokens each; six of them hold what is gathered. Source:
// Transformer Engine, initialize_ub.
Bytes chunked_buffers(const TransformerSlice& s) {
  if (s.gather_pieces == 1 && s.scatter_pieces == 1) return {};
  return 4 * s.hidden_states() + 6 * s.gathered_states();
}

}  // namespace trainyard::models
