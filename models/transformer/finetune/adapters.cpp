// m tokens, d bytes an element, r the rank, t tensor-parallel ranks. A matrix of `in` inputs and
// `out` outputs has an adapter B A; per adapter and rank, in products of m rows:
//
//   split by columns (qkv, fc1)   A  m x r/t x in, then an all-gather of m r
//                                 B  m x out/t x r
//   split by rows (proj, fc2)     A  m x r x in/t, then an all-reduce of m r
//                                 B  m x out/t x r, then an all-gather of m out
//   backward                      two products of weights and two of inputs of the same sizes; the
//                                 gradient of m r is all-reduced before A's, that of A's input in a
//                                 split by columns is reduced as the base's own is, or with it
//
//   Parameters: r (in + out), over t ranks. Scaling by alpha / r and the sum with the base's output
//   are a kernel each, one of torch.compile's. Kept: what A reads (all tokens, gathered) and m r;
//   with dropout a copy and a mask of one byte for each adapter instead. fp32 adapters under
//   autocast: a 16-bit copy for each, too, as peft brings what it reads to its own type and
//   autocast that to 16 bits (beside nf4 only what is fp32 before, of an fp32 stream); and
//   2 r (in + out) of its weights in 16 bits. Frozen weights: no
//   gradient of them is computed, and their product's input is kept only where something else needs
//   it. Below the lowest trained weight nothing runs backward. nf4: a kernel in front of each
//   product, forward and backward, that reads the narrow weights and writes 16-bit ones; with
//   double quantisation one before it that widens their scales.
//
// Source: huggingface/peft, tuners/lora/layer.py (Linear.forward), bnb.py (Linear4bit.forward) and
// tuners/tuners_utils.py (_cast_input_dtype); PyTorch, aten/src/ATen/autocast_mode.cpp
// (cached_cast); NVIDIA-NeMo/Megatron-Bridge, peft/utils.py (ParallelLinearAdapter); bitsandbytes,
// autograd/_functions.py (MatMul4Bit); PyTorch, tools/autograd/derivatives.yaml: what linear saves
// for which gradient.
#include "models/transformer/finetune/adapters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "models/layer/work_list.h"
#include "models/transformer/finetune/adapter_script.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

constexpr std::array<Target, kTargets> kAllTargets = {Target::query, Target::key,    Target::value,
                                                      Target::qkv,   Target::output, Target::gate,
                                                      Target::up,    Target::fc1,    Target::fc2};

PieceKind piece_of(Target target) {
  switch (target) {
    case Target::query:
    case Target::key:
    case Target::value:
    case Target::qkv: return PieceKind::qkv;
    case Target::output: return PieceKind::proj;
    case Target::gate:
    case Target::up:
    case Target::fc1: return PieceKind::fc1;
    case Target::fc2: return PieceKind::fc2;
  }
  return PieceKind::qkv;
}

bool splits_columns(PieceKind kind) {
  return kind == PieceKind::qkv || kind == PieceKind::fc1 || kind == PieceKind::shared_fc1;
}

std::optional<Part> part_of(PieceKind kind) {
  switch (kind) {
    case PieceKind::norm_1:
    case PieceKind::norm_2:
    case PieceKind::branch_norm_1:
    case PieceKind::branch_norm_2:
    case PieceKind::cross_norm: return Part::norms;
    case PieceKind::compress:
    case PieceKind::qkv:
    case PieceKind::heads:
    case PieceKind::proj: return Part::attention;
    case PieceKind::fc1:
    case PieceKind::fc2:
    case PieceKind::router:
    case PieceKind::experts_fc1:
    case PieceKind::experts_fc2:
    case PieceKind::shared_fc1:
    case PieceKind::shared_fc2:
    case PieceKind::shared_sum: return Part::feed_forward;
    default: return {};
  }
}

std::vector<Adapter> adapters_at(PieceKind kind, const TransformerSlice& s, const Finetune& how) {
  std::vector<Adapter> found;
  if (!how.adapts()) return found;
  for (const Target target : kAllTargets) {
    if (!how.targets.has(target) || piece_of(target) != kind) continue;
    const AdaptedMatrix base = adapted_matrix(target, s);
    if (base.outputs == 0) continue;  // the gate of a layer without one, named with its group
    const bool columns = splits_columns(kind);
    found.push_back({.name = std::string(name(target)) + " adapter",
                     .columns = columns,
                     .inputs = base.inputs,
                     .narrow = columns ? how.rank / s.tensor : how.rank,
                     .outputs = columns ? base.outputs : base.outputs / s.tensor,
                     .rank = how.rank});
  }
  return found;
}

// Narrow weights to 16 bits in front of each product that reads them.
std::vector<WorkItem> widening(const std::vector<WorkItem>& items, const Finetune& how,
                               bool backward) {
  WorkList list = backward ? WorkList::of_backward() : WorkList();
  for (const WorkItem& item : items) {
    const auto* named = std::get_if<NamedKernel>(&item);
    const auto* gemm = named != nullptr ? std::get_if<Gemm>(&named->kernel) : nullptr;
    if (gemm != nullptr && !named->weight_gradient && named->piece == 0) {
      const std::int64_t weights = gemm->n * gemm->k;
      const Bytes scales = nf4_bytes(weights, false) - Bytes(weights / 2);
      if (how.double_quantised)
        list.kernel(
            named->name + " scales to fp32",
            MemoryBound{MemoryOp::cast, nf4_bytes(weights, true) - Bytes(weights / 2), scales});
      list.kernel(
          named->name + " weights to 16 bits",
          MemoryBound{MemoryOp::cast, nf4_bytes(weights, false), weights * size_of(Dtype::bf16)});
    }
    list.append({item});
  }
  return list.take();
}

class Freezer {
 public:
  Freezer(LayerScript& script, const TransformerSlice& slice, const Finetune& how,
          const LayerForm& form, bool recompute)
      : script_(script), s_(slice), how_(how), form_(form), recompute_(recompute) {}

  void freeze();

 private:
  std::size_t index_of(PieceKind kind) const {
    for (std::size_t i = 0; i < script_.pieces.size(); ++i)
      if (script_.pieces[i].kind == kind) return i;
    return script_.pieces.size();
  }
  std::vector<Adapter> adapters(PieceKind kind) const {
    return form_.frozen ? std::vector<Adapter>() : adapters_at(kind, s_, how_);
  }
  // Whether what adapters keep of their input is a copy of it.
  bool copies_inputs(PieceKind kind) const {
    return how_.dropout || narrows_inputs(splits_columns(kind), s_, how_);
  }
  bool trains(PieceKind kind) const {
    const std::optional<Part> part = part_of(kind);
    return part && !form_.frozen && how_.trains_whole(*part);
  }
  // The first piece that anything of trains; all of them if gradients go on below the layer.
  std::size_t lowest() const;
  bool reads_input(PieceKind kind) const;
  void find_tensors(std::size_t lowest);
  void settle(SavedTensor& tensor);
  void rewrite(std::size_t at, std::size_t lowest);
  void adapt(Piece& piece, bool passes_on);
  void skip(const std::vector<WorkItem>& before, const std::vector<WorkItem>& after) {
    script_.skipped =
        script_.skipped + script_.ranks * (product_flops(before) - product_flops(after));
  }

  LayerScript& script_;
  const TransformerSlice& s_;
  const Finetune& how_;
  const LayerForm& form_;
  bool recompute_;
};

std::size_t Freezer::lowest() const {
  if (form_.reach == Reach::passes) return 0;
  for (std::size_t i = 0; i < script_.pieces.size(); ++i)
    if (trains(script_.pieces[i].kind) || !adapters(script_.pieces[i].kind).empty()) return i;
  return script_.pieces.size();
}

// Whether something that trains reads what the piece's products read.
bool Freezer::reads_input(PieceKind kind) const {
  if (trains(kind)) return true;
  const bool shared = kind == PieceKind::fc1 && s_.blocks == Blocks::parallel_one_norm;
  const auto adapted = [&](PieceKind reader) {
    return !adapters(reader).empty() && !copies_inputs(reader);
  };
  if (shared && (trains(PieceKind::qkv) || adapted(PieceKind::qkv))) return true;
  return adapted(kind);
}

// A tensor that a gradient of frozen weights would have read.
void Freezer::settle(SavedTensor& tensor) {
  // Narrow states of latent attention are what their norms have read, too.
  if (!tensor.matrix_input || (s_.latent.used() && tensor.until == PieceKind::qkv)) return;
  const PieceKind reader = tensor.until == PieceKind::combine ? PieceKind::router : tensor.until;
  if (reads_input(reader)) {
    const bool gathered = splits_columns(reader) && !trains(reader) && s_.sequence_parallel;
    if (gathered) tensor.bytes = s_.tokens * s_.hidden * s_.element();
    return;
  }
  // Fused attention reads its own output, and the gradient of ReLU the sign of its.
  const bool fused =
      reader == PieceKind::proj && s_.kernels.fused_attention() && s_.inputs == s_.stored;
  const bool sign = reader == PieceKind::fc2 && s_.feed_forward == FeedForward::relu;
  if (fused || sign) {
    tensor.until = fused ? PieceKind::core : PieceKind::activation;
    tensor.matrix_input = false;
  } else {
    tensor.bytes = Bytes(0);
  }
}

void Freezer::find_tensors(std::size_t lowest) {
  const auto needed = [&](const SavedTensor& tensor) {
    return tensor.bytes > Bytes(0) && index_of(tensor.until) >= lowest;
  };
  for (Piece& piece : script_.pieces) {
    for (SavedTensor& tensor : piece.saved)
      settle(tensor);
    std::erase_if(piece.saved, [&](const SavedTensor& tensor) { return !needed(tensor); });
  }
  if (recompute_) return;
  settle(script_.input);
  if (!needed(script_.input)) script_.input.bytes = Bytes(0);
}

void Freezer::adapt(Piece& piece, bool passes_on) {
  WorkList forward, backward = WorkList::of_backward();
  AdapterScript first(forward, s_, how_), second(backward, s_, how_);
  const std::vector<Adapter> own = adapters(piece.kind);
  for (const Adapter& adapter : own) {
    first.forward(adapter);
    const auto save = [&](Bytes bytes) {
      piece.saved.push_back({piece.module, bytes, piece.kind, true});
    };
    const Bytes mask(how_.dropout ? 1 : 0);
    if (copies_inputs(piece.kind)) save(s_.tokens * adapter.inputs * (s_.element() + mask));
    if (how_.autocast)
      save((adapter.narrow * adapter.inputs + adapter.outputs * adapter.rank) * s_.element());
    save(s_.tokens * adapter.rank * s_.element());
  }
  for (auto adapter = own.rbegin(); adapter != own.rend(); ++adapter)
    second.backward(*adapter, passes_on);
  for (WorkItem& item : forward.take()) {
    if (const auto* named = std::get_if<NamedKernel>(&item))
      script_.model_flops = script_.model_flops + script_.ranks * flops(named->kernel);
    piece.forward.push_back(std::move(item));
  }
  std::vector<WorkItem> added = backward.take();
  piece.backward.insert(piece.backward.begin(), std::make_move_iterator(added.begin()),
                        std::make_move_iterator(added.end()));
}

void Freezer::rewrite(std::size_t at, std::size_t lowest) {
  Piece& piece = script_.pieces[at];
  const bool is_frozen = !trains(piece.kind);
  const bool passes_on = form_.reach == Reach::passes || at > lowest;
  const std::vector<WorkItem> all = piece.backward;
  if (at < lowest && form_.reach != Reach::passes) {
    piece.backward.clear();
  } else if (part_of(piece.kind) != Part::norms) {
    if (is_frozen)
      piece.backward = passes_on ? without_weight_gradients(all, splits_columns(piece.kind))
                                 : std::vector<WorkItem>();
    else if (!passes_on)
      piece.backward = without_input_gradients(all);
  }
  const bool is_core = piece.kind == PieceKind::core || piece.kind == PieceKind::cross_core;
  if (is_core && piece.backward.empty()) {
    script_.skipped = script_.skipped + 2 * script_.attention;
    script_.skipped_masked = script_.skipped_masked + 2 * script_.masked;
  } else {
    skip(all, piece.backward);
  }
  const bool is_linear = piece.kind == PieceKind::qkv || piece.kind == PieceKind::proj ||
                         piece.kind == PieceKind::fc1 || piece.kind == PieceKind::fc2;
  if (how_.quantises() && is_linear) {
    piece.forward = widening(piece.forward, how_, false);
    piece.backward = widening(piece.backward, how_, true);
  }
  const double before = script_.model_flops.count();
  adapt(piece, passes_on);
  // Its input's gradient is one product of each adapter's six that is not made.
  if (!passes_on && script_.model_flops.count() > before) {
    for (const Adapter& adapter : adapters(piece.kind))
      script_.skipped =
          script_.skipped + script_.ranks * flops(Gemm{s_.tokens, adapter.narrow, adapter.inputs});
  }
}

void Freezer::freeze() {
  const std::size_t from = lowest();
  find_tensors(from);
  for (std::size_t at = 0; at < script_.pieces.size(); ++at)
    rewrite(at, from);
}

}  // namespace

Flops product_flops(const std::vector<WorkItem>& items) {
  Flops sum;
  for (const WorkItem& item : items) {
    const auto* named = std::get_if<NamedKernel>(&item);
    if (named != nullptr && std::holds_alternative<Gemm>(named->kernel))
      sum = sum + flops(named->kernel);
  }
  return sum;
}

std::vector<WorkItem> without_weight_gradients(const std::vector<WorkItem>& backward,
                                               bool gathers_input) {
  std::vector<WorkItem> items;
  bool drops_wait = false;
  for (const WorkItem& item : backward) {
    const auto* named = std::get_if<NamedKernel>(&item);
    if (named != nullptr && named->weight_gradient) continue;
    const auto* start = std::get_if<GroupCollective>(&item);
    if (gathers_input && start != nullptr && start->kind == CollectiveKind::all_gather) {
      drops_wait = true;
      continue;
    }
    if (drops_wait && std::holds_alternative<GroupWait>(item)) {
      drops_wait = false;
      continue;
    }
    items.push_back(item);
  }
  return items;
}

std::vector<WorkItem> without_input_gradients(const std::vector<WorkItem>& backward) {
  std::vector<WorkItem> items;
  for (const WorkItem& item : backward) {
    const auto* named = std::get_if<NamedKernel>(&item);
    const bool is_product = named != nullptr && std::holds_alternative<Gemm>(named->kernel);
    if (is_product && !named->weight_gradient) continue;
    const auto* start = std::get_if<GroupCollective>(&item);
    if (start != nullptr && start->kind != CollectiveKind::all_gather) continue;
    items.push_back(item);
  }
  return items;
}

AdaptedMatrix adapted_matrix(Target target, const TransformerSlice& s) {
  const bool dense = s.ffn > 0;
  switch (target) {
    case Target::query: return {s.heads * s.head_size, s.hidden};
    case Target::key:
    case Target::value: return {s.kv_heads * s.head_size, s.hidden};
    case Target::qkv: return {s.qkv_width, s.hidden};
    case Target::output: return {s.hidden, s.attention_width};
    case Target::gate: return gated(s) ? AdaptedMatrix{s.ffn, s.hidden} : AdaptedMatrix{};
    case Target::up: return dense ? AdaptedMatrix{s.ffn, s.hidden} : AdaptedMatrix{};
    case Target::fc1: return dense ? AdaptedMatrix{s.fc1_width, s.hidden} : AdaptedMatrix{};
    case Target::fc2: return dense ? AdaptedMatrix{s.hidden, s.ffn} : AdaptedMatrix{};
  }
  return {};
}

std::vector<WeightMatrix> adapter_matrices(const TransformerSlice& s, const Finetune& how) {
  std::vector<WeightMatrix> found;
  for (const PieceKind kind : {PieceKind::qkv, PieceKind::proj, PieceKind::fc1, PieceKind::fc2}) {
    for (const Adapter& adapter : adapters_at(kind, s, how)) {
      found.push_back({adapter.narrow, adapter.inputs});
      found.push_back({adapter.outputs, adapter.rank});
    }
  }
  return found;
}

Bytes widened_weights(const TransformerSlice& s, const Finetune& how) {
  if (!how.quantises()) return Bytes(0);
  std::int64_t most = 0;
  for (const Target target : {Target::qkv, Target::output, Target::fc1, Target::fc2}) {
    const AdaptedMatrix matrix = adapted_matrix(target, s);
    most = std::max(most, matrix.outputs * matrix.inputs);
  }
  return most * size_of(Dtype::bf16);
}

void freeze(LayerScript& script, const TransformerSlice& slice, const Finetune& how,
            const LayerForm& form, bool recompute) {
  TRAINYARD_CHECK(!how.all(), "nothing is frozen");
  Freezer(script, slice, how, form, recompute).freeze();
}

}  // namespace trainyard::models
