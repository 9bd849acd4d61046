// A layer as a script of pieces: what each runs forward and backward, and which tensors the
// backward pass needs. From a script and a form of recomputation follow the kernels and collectives
// that run again and where, the bytes kept between the passes and those restored: no form has
// formulas of its own. Private to the room.
//
// Domain: a tensor is needed last, forward order, by the piece `until`. A region that runs again
// gives up the tensors of its pieces that nothing outside of it reads backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/layer/layer_work.h"
#include "models/layer/work_list.h"

namespace trainyard::models {

enum class PieceKind : std::uint8_t {
  norm_1,
  compress,  // of latent attention
  qkv,
  heads,  // positions and the layout that attention wants
  core,
  proj,
  branch_norm_1,  // of what attention adds
  mamba_in,
  mamba_scan,  // convolution and norm included
  mamba_out,
  residual_1,
  cross_norm,
  cross_query,
  cross_key_value,
  cross_heads,
  cross_core,
  cross_proj,
  cross_residual,
  norm_2,
  fc1,
  activation,
  fc2,
  router,
  dispatch,
  experts_fc1,
  experts_activation,
  experts_fc2,
  combine,
  shared_fc1,
  shared_activation,
  shared_fc2,
  shared_sum,
  branch_sum,     // of attention and feed-forward, side by side
  branch_norm_2,  // of what the feed-forward half adds
  residual_2,
};

struct SavedTensor {
  Module module = Module::features;
  Bytes bytes;
  PieceKind until = PieceKind::norm_1;
  bool matrix_input = false;  // a weight gradient needs it
};

// A matrix multiplication as PyTorch's module has it, where the kernel may fuse several.
struct Product {
  std::int64_t columns = 0;
  Bytes output;
  std::string name{};  // with which its kernels' names begin where they are not joint ones
  int later = 0;       // so many products of the script after its place here; earlier if negative
};

struct Piece {
  PieceKind kind = PieceKind::norm_1;
  Module module = Module::features;  // of outputs that PyTorch's policy keeps
  std::vector<WorkItem> forward, backward;
  std::vector<SavedTensor> saved;
  std::vector<Product> products;  // their outputs, in the order of the kernel's columns
  Bytes fused_output;             // of fused attention, statistics included
  Bytes scattered;                // of a reduce-scatter that ends the piece
  Bytes exchanged;                // of an all-to-all in it, whose output nothing else keeps
};

struct LayerScript {
  SavedTensor input;
  std::vector<Piece> pieces;                // in forward order
  std::vector<std::size_t> backward_order;  // empty: the reverse
  double ranks = 1;                         // that share the layer, for FLOPs
  Flops attention;                          // model FLOPs of the piece `core`: the full square
  Flops masked;                             // of those, what the mask leaves out
  Flops cross_attention;                    // ... of `cross_core`, which has no mask
  Flops model_flops;                        // of all
  Flops skipped, skipped_masked;            // LayerWork::skipped_flops
  bool eager = false;  // operators run again even if nothing needs their outputs
};

// Appends a piece; `forward` and `backward` are called with a WorkList and `slice`.
template <class Slice, class Forward, class Backward>
void add_piece(LayerScript& script, PieceKind kind, const Slice& slice, Forward&& forward,
               Backward&& backward) {
  WorkList first;
  WorkList second = WorkList::of_backward();
  if constexpr (requires { slice.casts; }) {
    first.cast_operands(slice.casts);
    second.cast_operands(slice.casts);
  }
  forward(first, slice);
  backward(second, slice);
  Piece piece;
  piece.kind = kind;
  piece.forward = first.take();
  piece.backward = second.take();
  script.pieces.push_back(std::move(piece));
}

// Fills forward, recompute, backward, kept, restored and the FLOPs.
// Requires: `modules` has members only if its form is Recompute::modules.
void play(const LayerScript& script, const Recomputation& recompute, LayerWork& work);

// The regions that `modules` name exist in the script.
bool has_module(const LayerScript& script, RecomputeModule module);

}  // namespace trainyard::models
