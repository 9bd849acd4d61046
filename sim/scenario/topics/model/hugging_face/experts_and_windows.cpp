// What differs between the layers of one stack: experts and windows.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "sim/json/reader.h"
#include "sim/scenario/topics/model/hugging_face/families.h"

namespace trainyard::scenario {

using json::Value;

namespace {

constexpr std::string_view kExperts =
    "num_experts|num_local_experts|n_routed_experts|num_routed_experts|moe_num_experts|n_experts";
constexpr std::string_view kTopK =
    "num_experts_per_tok|experts_per_token|num_experts_per_token|moe_topk|moe_top_k";

// Dense layers in front are all that moe.first_dense can say.
void import_dense_layers(HuggingFaceImport& import, Value& moe) {
  const Value* dense = import.config.list("mlp_only_layers");
  if (dense == nullptr || dense->items.empty()) return;
  std::int64_t next = 0;
  for (const Value& layer : dense->items)
    next = next >= 0 && json::find_integer(layer) == next ? next + 1 : -1;
  if (next > 0 && moe.find("every") == nullptr)
    moe.set("first_dense", Value::of(next));
  else
    import.config.error(dense->at, "mlp_only_layers",
                        "dense layers between layers of experts are not described",
                        "moe.first_dense and moe.every describe regular ones");
}

// DeepSeek's remote code: layer i is a mixture if i >= first_k_dense_replace and
// i % moe_layer_freq == 0; ours counts the distance from the first dense ones.
void import_frequency(HuggingFaceImport& import, Value& moe) {
  const std::int64_t dense = import.config.count("first_k_dense_replace").value_or(0);
  const Value* frequency = import.config.find("moe_layer_freq");
  const std::int64_t every = import.config.count("moe_layer_freq").value_or(1);
  if (every <= 1) {
    if (dense > 0) moe.set("first_dense", Value::of(dense));
    return;
  }
  const std::int64_t first = (dense + every - 1) / every * every;
  if (first == 0) {
    import.config.error(frequency->at, "moe_layer_freq",
                        "layer 0 and every further one are mixtures, which is not described",
                        "moe.every makes the last layer of each run a mixture");
    return;
  }
  moe.set("first_dense", Value::of(first - every + 1));
  moe.set("every", Value::of(every));
}

}  // namespace

void import_experts(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  const Value* experts = config.find(kExperts);
  if (experts == nullptr || json::find_number(*experts) == 0.0) {
    if (import.family.mixture)
      config.missing(kExperts,
                     fmt::format("{} is a mixture of experts; known names: {}",
                                 import.family.model_type, fmt::join(names_in(kExperts), ", ")));
    return;
  }
  Value moe = Value::object();
  moe.at = experts->at;
  moe.set("experts", *experts);
  import.copy(moe, kTopK, "top_k");
  if (moe.find("top_k") == nullptr) config.missing(kTopK);
  import.copy(moe, "moe_intermediate_size|expert_intermediate_size", "expert_ffn_hidden");
  import.copy(moe, "n_shared_experts|num_shared_experts", "shared_experts");
  const Value* shared =
      config.find("shared_expert_intermediate_size|moe_shared_expert_intermediate_size");
  if (shared != nullptr && json::find_number(*shared) != 0.0) moe.set("shared_ffn_hidden", *shared);
  if (import.family.shared_gate && moe.find("shared_ffn_hidden") != nullptr)
    moe.set("shared_gate", Value::of(true));
  if (import.family.balance_bias) moe.set("balance_bias", Value::of(true));
  import.copy(moe, "decoder_sparse_step", "every");
  import_frequency(import, moe);
  import_dense_layers(import, moe);
  // A router that is greedy over all experts ignores its groups.
  const bool greedy = config.text("topk_method") == "greedy";
  const Value* groups = config.find("n_group");
  const Value* chosen = config.find("topk_group");
  if (!greedy && groups != nullptr) moe.set("groups", *groups);
  if (!greedy && chosen != nullptr) moe.set("top_groups", *chosen);
  import.set("moe", std::move(moe));
}

namespace {

struct Pattern {
  std::int64_t first = 0, global_every = 0;
};

bool follows(const std::vector<bool>& windowed, const Pattern& pattern) {
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const bool wanted = layer >= pattern.first &&
                        (pattern.global_every == 0 || (layer + 1) % pattern.global_every != 0);
    if (wanted != windowed[i]) return false;
  }
  return true;
}

// The pattern of a list, if it has one: its first window, and the first layer without behind it.
std::optional<Pattern> pattern_of(const std::vector<bool>& windowed) {
  const auto first = std::find(windowed.begin(), windowed.end(), true);
  const auto global = std::find(first, windowed.end(), false);
  const std::int64_t every = global == windowed.end() ? 0 : global - windowed.begin() + 1;
  for (const std::int64_t from : {std::int64_t{0}, std::int64_t{first - windowed.begin()}}) {
    if (follows(windowed, {from, every})) return Pattern{from, every};
  }
  return {};
}

// layer_types, if the file has it; an error if it holds layers that no network here has.
std::optional<std::vector<bool>> listed_layers(HuggingFaceConfig& config, std::int64_t layers) {
  const Value* list = config.list("layer_types");
  if (list == nullptr) return {};
  if (static_cast<std::int64_t>(list->items.size()) != layers) {
    config.error(list->at, "layer_types",
                 fmt::format("{} kinds for {} layers", list->items.size(), layers));
    return {};
  }
  std::vector<bool> windowed;
  for (const Value& item : list->items) {
    const bool window = item.text == "sliding_attention" || item.text == "chunked_attention";
    if (!window && item.text != "full_attention") {
      config.error(item.at, "layer_types",
                   fmt::format("a layer of {} is not described", json::quoted(item)),
                   "known: full_attention, sliding_attention, chunked_attention");
      return {};
    }
    windowed.push_back(window);
  }
  return windowed;
}

std::optional<Pattern> ruled_pattern(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  const WindowRule& rule = import.family.windows;
  switch (rule.kind) {
    case WindowRule::Kind::none:
    case WindowRule::Kind::mixers: return {};
    case WindowRule::Kind::all: return Pattern{};
    case WindowRule::Kind::by_flag: {
      const std::int64_t first = config.count("max_window_layers").value_or(0);
      if (!config.flag("use_sliding_window").value_or(false)) return {};
      return Pattern{first, 0};
    }
    case WindowRule::Kind::alternate:
      return Pattern{0, config.count(rule.every_key).value_or(rule.every)};
  }
  return {};
}

}  // namespace

void import_windows(HuggingFaceImport& import) {
  if (import.family.windows.kind == WindowRule::Kind::mixers) return;
  HuggingFaceConfig& config = import.config;
  std::optional<Pattern> pattern = ruled_pattern(import);
  const std::optional<std::vector<bool>> listed =
      listed_layers(config, config.count(import.family.layers).value_or(0));
  if (import.family.windows.kind == WindowRule::Kind::none) return;
  const Value* size = config.find("sliding_window");
  if (listed && std::find(listed->begin(), listed->end(), true) == listed->end()) return;
  if (listed) {
    pattern = pattern_of(*listed);
    if (!pattern) {
      config.error(config.find("layer_types")->at, "layer_types",
                   "windows that follow no regular pattern are not described",
                   "model.window has first and global_every");
      return;
    }
  }
  if (!pattern || size == nullptr || json::find_number(*size) == 0.0) return;
  Value window = Value::object();
  window.at = size->at;
  window.set("size", *size);
  if (pattern->first > 0) window.set("first", Value::of(pattern->first));
  if (pattern->global_every > 0) window.set("global_every", Value::of(pattern->global_every));
  import.set("window", std::move(window));
}

}  // namespace trainyard::scenario
