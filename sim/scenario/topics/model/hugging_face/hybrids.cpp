// Families whose layers have one part each, or whose layers differ by their mixer: Mamba-2 beside
// attention. Source: transformers, modeling_nemotron_h.py, modeling_mamba2.py, modeling_bamba.py,
// modeling_granitemoehybrid.py.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "sim/json/reader.h"
#include "sim/scenario/topics/model/hugging_face/families.h"

namespace trainyard::scenario {

using json::Value;

namespace {

constexpr std::string_view kNumber = "num_hidden_layers";
constexpr std::int64_t kMostLayers = 100'000;  // one more is refused with the number of layers

std::int64_t layers_of(HuggingFaceImport& import) {
  return std::min(kMostLayers + 1, import.config.count(import.family.layers).value_or(0));
}

void flag_must_be(HuggingFaceImport& import, std::string_view key, bool described) {
  const std::optional<bool> flag = import.config.flag(key);
  if (flag && *flag != described)
    import.config.error(import.config.find(key)->at, import.config.name_of(key),
                        fmt::format("{} is not described", *flag), fmt::format("{} is", described));
}

// What leaves the network as it is: starting values, caches and forms of one and the same kernel.
void pass_over(HuggingFaceImport& import) {
  for (const std::string_view key :
       {"expand|mamba_expand", "time_step_rank", "time_step_min", "time_step_max",
        "time_step_floor", "time_step_limit", "rescale_prenorm_residual", "mamba_ssm_cache_dtype",
        "num_logits_to_keep", "use_mamba_kernels", "A_initializer_range", "embedding_multiplier",
        "logits_scaling", "residual_multiplier", "attention_multiplier",
        "moe_shared_expert_overlap"})
    import.config.find(key);
  const std::string_view stream = "residual_in_fp32";
  if (import.config.flag(stream).value_or(false))
    import.config.warning(import.config.find(stream)->at, stream,
                          "the stream is priced and kept in 16 bits");
  flag_must_be(import, "use_conv_bias|mamba_conv_bias", true);
  flag_must_be(import, "mamba_proj_bias", false);
}

// The file's names of the fields of /model/mamba.
struct MambaNames {
  std::string_view heads, head_size, groups, state_size, convolution, chunk;
};

Value import_mamba(HuggingFaceImport& import, const MambaNames& names) {
  Value mamba = Value::object();
  mamba.at = import.config.at();
  import.copy(mamba, names.heads, "heads");
  if (mamba.find("heads") == nullptr) import.config.missing(names.heads);
  const Value* head = import.config.find(names.head_size);
  if (head != nullptr && head->text != "auto") {
    mamba.set("head_dim", *head);
  } else if (const std::int64_t heads = import.config.count(names.heads).value_or(0); heads > 0) {
    const std::int64_t inner = import.config.count("expand|mamba_expand").value_or(2) *
                               import.config.count(import.family.hidden).value_or(0);
    if (inner >= heads) mamba.set("head_dim", Value::of(inner / heads));
  }
  import.copy(mamba, names.groups, "groups");
  import.copy(mamba, names.state_size, "state_dim");
  import.copy(mamba, names.convolution, "conv_kernel");
  import.copy(mamba, names.chunk, "chunk");
  pass_over(import);
  return mamba;
}

void set_pattern(HuggingFaceImport& import, const std::string& pattern, Value mamba) {
  if (pattern.empty()) return;
  import.set("layer_pattern", Value::of(pattern));
  import.set("layers", Value::of(static_cast<std::int64_t>(pattern.size())));
  if (pattern.find('M') != std::string::npos) import.set("mamba", std::move(mamba));
}

// In these classes all linear attention is Mamba-2's (transformers since 5).
bool is_mamba(std::string_view word) {
  return word == "mamba" || word == "mamba2" || word == "linear_attention";
}

// A letter for each of a list's words; words that have none are an error.
std::string letters(HuggingFaceImport& import, std::string_view key) {
  const Value* list = import.config.list(key);
  std::string pattern;
  if (list == nullptr) return pattern;
  for (const Value& item : list->items) {
    const std::string_view word = item.text;
    const char letter = is_mamba(word)                                    ? 'M'
                        : word == "attention" || word == "full_attention" ? '*'
                        : word == "mlp"                                   ? '-'
                        : word == "moe"                                   ? 'E'
                                                                          : '?';
    if (letter == '?')
      import.config.error(item.at, key, fmt::format("unknown layer {}", json::quoted(item)),
                          "known: mamba, linear_attention, attention, full_attention, mlp, moe");
    else
      pattern += letter;
  }
  return pattern;
}

// What a file says that has a number of layers and a list of another length; empty: it has not.
std::string disagreement(HuggingFaceImport& import, const std::string& listed) {
  const std::optional<std::int64_t> layers = import.config.count(kNumber);
  const auto found = static_cast<std::int64_t>(listed.size());
  if (!layers || found == 0 || *layers == found) return {};
  return fmt::format("{} layers, and the list of them has {}", *layers, found);
}

// Layers of a mixer and a feed-forward half as two of one part each.
std::string with_feed_forward(const std::string& mixers, bool mixture) {
  std::string pattern;
  for (const char mixer : mixers) {
    pattern += mixer;
    pattern += mixture ? 'E' : '-';
  }
  return pattern;
}

constexpr MambaNames kLongNames = {.heads = "mamba_n_heads",
                                   .head_size = "mamba_d_head",
                                   .groups = "mamba_n_groups",
                                   .state_size = "mamba_d_state",
                                   .convolution = "mamba_d_conv",
                                   .chunk = "mamba_chunk_size"};

}  // namespace

void nemotron_h_details(HuggingFaceImport& import) {
  Value mamba = import_mamba(import, {.heads = "mamba_num_heads",
                                      .head_size = "mamba_head_dim",
                                      .groups = "mamba_n_groups|n_groups",
                                      .state_size = "ssm_state_size",
                                      .convolution = "mamba_d_conv|conv_kernel",
                                      .chunk = "mamba_chunk_size|chunk_size"});
  constexpr std::int64_t kGroups = 8;  // of the class, under either name
  if (mamba.find("groups") == nullptr) mamba.set("groups", Value::of(kGroups));
  import.copy("attention_head_dim", "head_dim");
  import.config.find("mamba_hidden_act");
  import.config.find("mtp_hybrid_override_pattern");
  import.config.find("mtp_layers_block_type");
  flag_must_be(import, "use_bias", false);
  std::string pattern = import.config.text("hybrid_override_pattern");
  if (pattern.empty()) pattern = letters(import, "layers_block_type|layer_types");
  if (pattern.empty())
    import.config.missing("hybrid_override_pattern|layers_block_type|layer_types");
  // As the class does, which counts its list.
  if (const std::string wrong = disagreement(import, pattern); !wrong.empty())
    import.config.warning(import.config.find(kNumber)->at, kNumber, wrong, "the list counts");
  set_pattern(import, pattern, std::move(mamba));
  // The class has experts whether or not a layer does.
  if (pattern.find('E') == std::string::npos) import.model.erase("moe");
}

// Nothing attends; heads are those of the state space.
void mamba2_details(HuggingFaceImport& import) {
  Value mamba = import_mamba(import, {.heads = "num_heads",
                                      .head_size = "head_dim",
                                      .groups = "n_groups",
                                      .state_size = "state_size",
                                      .convolution = "conv_kernel",
                                      .chunk = "chunk_size"});
  flag_must_be(import, "use_bias", false);
  flag_must_be(import, "rms_norm", true);
  import.config.find("intermediate_size");
  set_pattern(import, std::string(static_cast<std::size_t>(layers_of(import)), 'M'),
              std::move(mamba));
}

void bamba_details(HuggingFaceImport& import) {
  Value mamba = import_mamba(import, kLongNames);
  import.config.find("attn_rotary_emb");
  std::string mixers(static_cast<std::size_t>(layers_of(import)), 'M');
  const Value* attention = import.config.list("attn_layer_indices");
  if (attention != nullptr && !mixers.empty())
    for (const Value& item : attention->items) {
      const std::int64_t layer = json::find_integer(item).value_or(-1);
      if (layer >= 0 && layer < static_cast<std::int64_t>(mixers.size()))
        mixers[static_cast<std::size_t>(layer)] = '*';
      else
        import.config.error(item.at, "attn_layer_indices", "there is no such layer",
                            fmt::format("layers are 0 to {}", mixers.size() - 1));
    }
  set_pattern(import, with_feed_forward(mixers, false), std::move(mamba));
}

// Without experts the shared half is all that a layer feeds forward.
void granite_hybrid_details(HuggingFaceImport& import) {
  Value mamba = import_mamba(import, kLongNames);
  const bool mixture = import.model.find("moe") != nullptr;
  const Value* shared = import.config.find("shared_intermediate_size");
  if (shared != nullptr && mixture) {
    Value moe = *import.model.find("moe");
    moe.set("shared_ffn_hidden", *shared);
    import.set("moe", std::move(moe));
  } else if (shared != nullptr) {
    import.set("ffn_hidden", *shared);
  }
  import.config.find("normalization_function");
  if (import.config.text("position_embedding_type") == "nope")
    import.set("positional", Value::of("none"));
  std::string mixers = letters(import, "layer_types|layers_block_type");
  if (mixers.empty()) import.config.missing("layer_types");
  if (const std::string wrong = disagreement(import, mixers); !wrong.empty())
    import.config.error(import.config.find(kNumber)->at, kNumber, wrong, "mend either");
  set_pattern(import, with_feed_forward(mixers, mixture), std::move(mamba));
}

}  // namespace trainyard::scenario
