#include "models/layer/layer_script.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "models/layer/work_list.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

// Pieces [first, last] run again before the backward pass of `before`.
struct Region {
  std::size_t first = 0, last = 0;
  std::size_t before = 0;        // a piece
  bool gives_up_output = false;  // also what pieces outside of it read
};

class Player {
 public:
  Player(const LayerScript& script, LayerWork& work) : script_(script), work_(work) {
    order_ = script.backward_order;
    if (order_.empty()) {
      order_.resize(script.pieces.size());
      std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
    }
    turn_.resize(order_.size());
    for (std::size_t turn = 0; turn < order_.size(); ++turn)
      turn_[order_[turn]] = turn;
  }

  void play_all(const Recomputation& chosen);

 private:
  const std::vector<Piece>& pieces() const { return script_.pieces; }
  // The piece's place; that of the last piece if the layer has none of the kind.
  std::size_t index_of(PieceKind kind) const;
  // The piece of [first, last] whose backward pass comes first.
  std::size_t first_backward(std::size_t first, std::size_t last) const;
  void add(PieceKind first, PieceKind last, std::optional<PieceKind> before = {});
  bool is_given_up(const Region& region, const SavedTensor& tensor) const;
  std::size_t last_needed() const;
  void keep_outputs_of_operators();
  void keep_what_regions_leave();
  void write_backward();
  void count_flops();

  const LayerScript& script_;
  LayerWork& work_;
  std::vector<std::size_t> order_;  // backward
  std::vector<std::size_t> turn_;   // of a piece in it
  std::vector<Region> regions_;
  std::vector<std::vector<WorkItem>> again_;  // by piece: its part of what runs again
};

bool is_kind(const Piece& piece, PieceKind kind) {
  return piece.kind == kind;
}

std::optional<std::size_t> find_piece(const LayerScript& script, PieceKind kind) {
  for (std::size_t i = 0; i < script.pieces.size(); ++i)
    if (is_kind(script.pieces[i], kind)) return i;
  return {};
}

std::size_t Player::index_of(PieceKind kind) const {
  return find_piece(script_, kind).value_or(pieces().size() - 1);
}

std::size_t Player::first_backward(std::size_t first, std::size_t last) const {
  std::size_t found = last;
  for (std::size_t i = first; i <= last; ++i)
    if (turn_[i] < turn_[found]) found = i;
  return found;
}

// Adds a region if the layer has it. With `before` it gives up its output.
void Player::add(PieceKind first, PieceKind last, std::optional<PieceKind> before) {
  const auto from = find_piece(script_, first), to = find_piece(script_, last);
  if (!from || !to) return;
  Region region{*from, *to, first_backward(*from, *to), before.has_value()};
  if (before) region.before = index_of(*before);
  regions_.push_back(region);
}

bool Player::is_given_up(const Region& region, const SavedTensor& tensor) const {
  return region.gives_up_output || index_of(tensor.until) <= region.last;
}

// Both loops take the tensors in the order of the layer.
void Player::keep_what_regions_leave() {
  std::vector<std::int64_t> live(pieces().size(), 0);  // restored, by backward turn
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    for (const SavedTensor& tensor : pieces()[i].saved) {
      const auto region = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) {
        return r.first <= i && i <= r.last && is_given_up(r, tensor);
      });
      if (region == regions_.end()) {
        work_.kept.add(tensor.module, tensor.bytes);
        continue;
      }
      std::size_t end = 0;
      for (std::size_t k = region->first; k <= region->last; ++k)
        end = std::max(end, turn_[k]);
      for (std::size_t turn = turn_[region->before]; turn <= end; ++turn)
        live[turn] += tensor.bytes.count();
      work_.restored_for_weights = work_.restored_for_weights || tensor.matrix_input;
    }
  }
  work_.restored = Bytes(*std::max_element(live.begin(), live.end()));
  for (const Region& region : regions_)
    for (std::size_t i = region.first; i <= region.last; ++i)
      again_[i] = pieces()[i].forward;
}

// The last piece that makes a tensor which the backward pass reads.
std::size_t Player::last_needed() const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < pieces().size(); ++i)
    if (!pieces()[i].saved.empty()) last = i;
  return last;
}

// The piece's kernels without the products whose output is kept; collectives as they are. A script
// has a product as a matrix multiplication of its own, or as columns of a joint one; either may be
// cut into rows.
std::vector<WorkItem> without_products(const Piece& piece, const std::vector<bool>& kept) {
  std::int64_t all = 0, columns = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    all += piece.products[i].columns;
    if (kept[i]) columns += piece.products[i].columns;
  }
  const auto is_kept = [&](const std::string& kernel) {
    std::size_t i = 0;
    while (i < kept.size() && kernel.rfind(piece.products[i].name, 0) != 0)
      ++i;
    return i < kept.size() && kept[i];
  };
  std::vector<WorkItem> items;
  for (const WorkItem& item : piece.forward) {
    const auto* named = std::get_if<NamedKernel>(&item);
    const auto* gemm = named != nullptr ? std::get_if<Gemm>(&named->kernel) : nullptr;
    if (gemm == nullptr) {
      items.push_back(item);
    } else if (gemm->n != all) {
      if (!is_kept(named->name)) items.push_back(item);
    } else if (columns < all) {
      NamedKernel rest = *named;
      std::get<Gemm>(rest.kernel).n -= columns;
      items.emplace_back(std::move(rest));
    }
  }
  return items;
}

std::vector<WorkItem> without_collectives(const std::vector<WorkItem>& items) {
  std::vector<WorkItem> kernels;
  for (const WorkItem& item : items)
    if (std::holds_alternative<NamedKernel>(item)) kernels.push_back(item);
  return kernels;
}

// The whole layer runs again up to the last tensor that the backward pass needs, and operators
// whose outputs were kept hand those out. A compiler also leaves out what nothing needs: outputs
// kept behind that tensor, and products whose scattered sum is kept.
void Player::keep_outputs_of_operators() {
  const std::size_t last = last_needed();
  int products = 0;
  Bytes restored;
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    const Piece& piece = pieces()[i];
    const bool needed = i <= last;
    const bool scattered = piece.scattered > Bytes(0);
    std::int64_t columns = 0, all_columns = 0;
    Bytes kept = piece.fused_output;
    if (needed || script_.eager) kept = kept + piece.scattered;
    std::vector<bool> kept_products;
    for (const Product& product : piece.products) {
      all_columns += product.columns;
      kept_products.push_back((++products + product.later) % 2 != 0);
      if (!kept_products.back()) continue;
      columns += product.columns;
      if (script_.eager || (needed && !scattered)) kept = kept + product.output;
    }
    work_.kept.add(piece.module, kept + piece.exchanged);
    Bytes saved;
    for (const SavedTensor& tensor : piece.saved)
      saved = saved + tensor.bytes;
    if (saved > kept) restored = restored + (saved - kept);

    if (!needed || piece.fused_output > Bytes(0)) continue;
    // Norms follow compressions in their piece.
    const bool dead = !piece.products.empty() && (columns == all_columns || scattered) &&
                      !is_kind(piece, PieceKind::compress);
    if (dead && !script_.eager) continue;
    again_[i] = without_products(piece, kept_products);
    if (scattered || piece.exchanged > Bytes(0)) again_[i] = without_collectives(again_[i]);
  }
  work_.restored = restored;
  work_.restored_for_weights = true;
  regions_ = {{0, pieces().size() - 1, order_.front(), false}};
}

void Player::write_backward() {
  WorkList whole, backward;
  std::stable_sort(regions_.begin(), regions_.end(),
                   [](const Region& a, const Region& b) { return a.first < b.first; });
  for (const std::size_t i : order_) {
    for (const Region& region : regions_) {
      if (region.before != i) continue;
      WorkList& list = i == order_.front() ? whole : backward;
      for (std::size_t k = region.first; k <= region.last; ++k)
        list.append(recomputed(again_[k]));
    }
    backward.append(pieces()[i].backward);
  }
  work_.recompute = whole.take();
  work_.backward = backward.take();
}

// Attention counts its square, and apart what the mask leaves out of it.
void Player::count_flops() {
  double sum = 0;
  bool all = !regions_.empty();
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    all = all && again_[i].size() == pieces()[i].forward.size();
    if (again_[i].empty()) continue;
    if (is_kind(pieces()[i], PieceKind::core) || is_kind(pieces()[i], PieceKind::cross_core)) {
      const bool own = is_kind(pieces()[i], PieceKind::core);
      sum += (own ? script_.attention : script_.cross_attention).count();
      if (own) work_.recompute_masked_flops = script_.masked;
      continue;
    }
    for (const WorkItem& item : again_[i])
      if (const auto* named = std::get_if<NamedKernel>(&item))
        sum += script_.ranks * flops(named->kernel).count();
  }
  work_.forward_model_flops = script_.model_flops;
  work_.forward_masked_flops = script_.masked;
  work_.recompute_model_flops = all ? script_.model_flops : Flops(sum);
}

void Player::play_all(const Recomputation& chosen) {
  using M = RecomputeModule;
  using P = PieceKind;
  const Recompute recompute = chosen.form;
  const RecomputeModules& modules = chosen.modules;
  again_.resize(pieces().size());
  work_.kept.add(script_.input.module, script_.input.bytes);
  if (recompute == Recompute::full) regions_ = {{0, pieces().size() - 1, order_.front(), false}};
  for (const P kind : {P::core, P::cross_core}) {
    const auto core = find_piece(script_, kind);
    const bool fused = core && pieces()[*core].fused_output > Bytes(0);
    if ((recompute == Recompute::selective && !fused) || modules.has(M::core_attn)) add(kind, kind);
  }
  if (modules.has(M::mlp)) add(P::fc1, P::fc2);
  if (modules.has(M::moe))
    add(P::router, find_piece(script_, P::shared_sum) ? P::shared_sum : P::combine);
  if (modules.has(M::shared_experts)) add(P::shared_fc1, P::shared_fc2);
  if (modules.has(M::moe_act)) add(P::experts_activation, P::experts_activation, P::experts_fc2);
  if (modules.has(M::mla_up_proj) && find_piece(script_, P::compress))
    add(P::qkv, P::heads, P::core);
  if (modules.has(M::layernorm)) {
    // Where it is the only norm, the feed-forward layer reads it too, and comes first.
    // One that stands before Mamba is part of the projection's kernel.
    if (!find_piece(script_, P::mamba_in))
      add(P::norm_1, P::norm_1,
          find_piece(script_, P::branch_sum) && !find_piece(script_, P::norm_2) ? P::branch_sum
                                                                                : P::proj);
    add(P::norm_2, P::norm_2);
    if (const auto norm = find_piece(script_, P::norm_2)) {
      regions_.back().gives_up_output = true;
      regions_.back().before = first_backward(*norm, index_of(P::residual_2) - 1);
    }
  }
  if (recompute == Recompute::operators)
    keep_outputs_of_operators();
  else
    keep_what_regions_leave();
  if (recompute == Recompute::full && chosen.stops_early)
    for (std::size_t i = last_needed() + 1; i < again_.size(); ++i)
      again_[i].clear();
  for (const Piece& piece : pieces())
    work_.forward.insert(work_.forward.end(), piece.forward.begin(), piece.forward.end());
  write_backward();
  count_flops();
}

}  // namespace

bool has_module(const LayerScript& script, RecomputeModule module) {
  const auto has = [&](PieceKind kind) { return find_piece(script, kind).has_value(); };
  switch (module) {
    case RecomputeModule::core_attn: return has(PieceKind::core);
    case RecomputeModule::mlp: return has(PieceKind::fc1);
    case RecomputeModule::moe:
    case RecomputeModule::moe_act: return has(PieceKind::router);
    case RecomputeModule::shared_experts: return has(PieceKind::shared_fc1);
    // Where norms stand after the additions, their outputs are what the additions read.
    case RecomputeModule::layernorm: return is_kind(script.pieces.front(), PieceKind::norm_1);
    case RecomputeModule::mla_up_proj: return has(PieceKind::compress);
  }
  return false;
}

void play(const LayerScript& script, const Recomputation& recompute, LayerWork& work) {
  TRAINYARD_CHECK(!script.pieces.empty(), "a layer without pieces");
  Player(script, work).play_all(recompute);
}

}  // namespace trainyard::models
