#include "sim/scenario/topics/model/hugging_face/known_keys.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace trainyard::scenario {
namespace {

// Keys of transformers' PretrainedConfig and of its model classes that change neither a count of
// parameters nor a kernel.
constexpr std::string_view kHarmless[] = {
    // Names and versions.
    "architectures",
    "auto_map",
    "chat_template",
    "custom_pipelines",
    "description",
    "finetuning_task",
    "framework_version",
    "model_name",
    "model_type",
    "name_or_path",
    "prefix",
    "problem_type",
    "source",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "adapters_version",
    "id2label",
    "label2id",
    "num_labels",
    "license",
    // Ids of tokens that the suffixes below do not catch.
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "mm_tokens_per_image",
    // Initial values.
    "initializer_factor",
    "initializer_range",
    "init_std",
    "init_method",
    "initializer_cutoff_factor",
    // Positions: angles and lengths of rope; how many tokens are meant to fit.
    "max_position_embeddings",
    "max_sequence_length",
    "model_max_length",
    "n_ctx",
    "n_positions",
    "original_max_position_embeddings",
    "initial_context_length",
    "seq_length",
    "seq_len",
    "max_seq_len",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_dim",
    "rotary_emb_base",
    "global_rope_theta",
    "local_rope_theta",
    "default_theta",
    // Scales: numbers by which a kernel that runs anyway multiplies.
    "attn_scale",
    "attn_temperature_tuning",
    "floor_scale",
    "query_pre_attn_scalar",
    "routed_scaling_factor",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "swiglu_alpha",
    "attention_softmax_in_fp32",
    "reorder_and_upcast_attn",
    "apply_residual_connection_post_layernorm",
    "masked_softmax_fusion",
    "slow_but_exact",
    // Routing that is the same work.
    "norm_topk_prob",
    "scoring_func",
    "seq_aux",
    "topk_method",
    "aux_loss_alpha",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "ep_size",
    "use_grouped_mm",
    // Execution, losses and generation.
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "do_sample",
    "early_stopping",
    "exponential_decay_length_penalty",
    "gradient_checkpointing",
    "diversity_penalty",
    "is_decoder",
    "is_encoder_decoder",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "penalty_alpha",
    "pretraining_tp",
    "quantization_config",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "temperature",
    "tf_legacy_loss",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
    "use_cache",
    "use_flash_attn",
    "z_loss",
    "pad_vocab_size_multiple",
    "relative_attention_max_distance",
    "dense_act_fn",
    "is_gated_act",
    "encoder_stride",
    "pooler_act",
    "pooler_output_size",
    "expert_dtype",
    "use_mrope",
    "fp32_residual_connection",
    "nextn_predict_loss_coef",
};

constexpr std::string_view kHarmlessEnds[] = {"_token_id", "_token_ids", "_token_index",
                                              "_eps",      "_epsilon",   "_tokenizer"};
constexpr std::string_view kHarmlessStarts[] = {"_", "output_", "rope_", "summary_", "unsloth_"};

constexpr std::string_view kStructural[] = {
    "alibi",    "attention", "attn",      "bias",       "biases",      "block",      "blocks",
    "channels", "config",    "conv",      "cross",      "depth",       "dim",        "dims",
    "embd",     "embed",     "embedding", "embeddings", "every",       "expand",     "expert",
    "experts",  "factor",    "ffn",       "freq",       "frequency",   "gate",       "gated",
    "group",    "groups",    "head",      "heads",      "hidden",      "indexer",    "intermediate",
    "interval", "kernel",    "key",       "kv",         "latent",      "layer",      "layernorm",
    "layers",   "linear",    "lora",      "mamba",      "mixture",     "mlp",        "moe",
    "mtp",      "n",         "nextn",     "ngram",      "norm",        "num",        "parallel",
    "pattern",  "position",  "positions", "predict",    "proj",        "projection", "qk",
    "qkv",      "query",     "rank",      "recurrent",  "residual",    "router",     "shared",
    "size",     "sizes",     "sliding",   "softcap",    "softcapping", "sparse",     "ssm",
    "state",    "step",      "value",     "vocab",      "width",       "window",     "windows",
};

bool has(std::span<const std::string_view> list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

bool is_off(const json::Value& value) {
  switch (value.kind) {
    case json::Kind::null: return true;
    case json::Kind::boolean: return !value.boolean;
    case json::Kind::number: return json::find_number(value) == 0.0;
    case json::Kind::string: return value.text.empty();
    case json::Kind::array: return value.items.empty();
    case json::Kind::object: return value.members.empty();
  }
  return false;
}

bool is_harmless_key(std::string_view key) {
  const auto ends = [&](std::string_view end) {
    return key.size() >= end.size() && key.substr(key.size() - end.size()) == end;
  };
  const auto starts = [&](std::string_view start) { return key.substr(0, start.size()) == start; };
  return has(kHarmless, key) ||
         std::any_of(std::begin(kHarmlessEnds), std::end(kHarmlessEnds), ends) ||
         std::any_of(std::begin(kHarmlessStarts), std::end(kHarmlessStarts), starts);
}

bool may_change_network(std::string_view key) {
  while (!key.empty()) {
    const std::size_t end = std::min(key.find('_'), key.size());
    if (has(kStructural, key.substr(0, end))) return true;
    key.remove_prefix(std::min(end + 1, key.size()));
  }
  return false;
}

}  // namespace trainyard::scenario
