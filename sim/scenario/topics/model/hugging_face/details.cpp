// What single families have beside what all have.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/json/reader.h"
#include "sim/scenario/topics/model/hugging_face/families.h"

namespace trainyard::scenario {

using json::Value;

namespace {

// A choice of which only one way is described.
void must_be(HuggingFaceImport& import, std::string_view key, std::string_view described) {
  const Value* value = import.config.find(key);
  if (value != nullptr && value->text != described)
    import.config.error(value->at, key, fmt::format("{} is not described", json::quoted(*value)),
                        fmt::format("\"{}\" is", described));
}

std::int64_t at_least_one(HuggingFaceConfig& config, std::string_view key) {
  const std::int64_t number = config.count(key).value_or(1);
  if (number == 0)
    config.error(config.find(key)->at, key, "0 is no distance between layers", "the least is 1");
  return std::max<std::int64_t>(1, number);
}

// A list of layer numbers, from 0, that must be those of `described`.
template <class Described>
void check_layers(HuggingFaceImport& import, std::string_view key, const Described& described) {
  const Value* list = import.config.list(key);
  if (list == nullptr) return;
  constexpr std::int64_t kMost = 100'000;  // more are refused with the number of layers
  const std::int64_t layers =
      std::min(kMost, import.config.count(import.family.layers).value_or(0));
  std::vector<std::int64_t> wanted;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (described(layer)) wanted.push_back(layer);
  std::vector<std::int64_t> found;
  for (const Value& item : list->items)
    found.push_back(json::find_integer(item).value_or(-1));
  if (found != wanted)
    import.config.error(list->at, key, "layers in no regular order are not described",
                        "moe.first_dense and moe.every describe regular ones");
}

}  // namespace

// Without n_inner the feed-forward layer is four times as wide, as ours is.
void gpt2_details(HuggingFaceImport&) {}

// BERT's class for masked tokens alone has no second head; every other one is taken to be that of
// pre-training.
void bert_details(HuggingFaceImport& import) {
  Value heads = Value::object();
  heads.at = import.config.at();
  import.copy(heads, "type_vocab_size", "token_types");
  const Value* classes = import.config.find("architectures");
  if (classes != nullptr && classes->items.size() == 1 &&
      classes->items[0].text == "BertForMaskedLM")
    heads.set("next_sentence", Value::of(false));
  import.set("encoder", std::move(heads));
  must_be(import, "position_embedding_type", "absolute");
}

void t5_details(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  import.copy("d_kv", "head_dim", true);
  import.copy("relative_attention_num_buckets", "position_buckets");
  const Value* feed_forward = config.find("feed_forward_proj");
  const std::string name = config.text("feed_forward_proj");
  if (name == "relu" || name == "gated-gelu")
    import.set("ffn", Value::of(name == "relu" ? "relu" : "geglu"));
  else
    config.error(feed_forward->at, "feed_forward_proj",
                 fmt::format("unknown feed-forward layer {}", json::quoted(*feed_forward)),
                 "known: relu, gated-gelu");
  const Value* layers = config.find("num_decoder_layers");
  if (layers == nullptr) return;
  Value decoder = Value::object();
  decoder.at = layers->at;
  decoder.set("layers", *layers);
  import.set("decoder", std::move(decoder));
}

void vit_details(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  Value vision = Value::object();
  vision.at = config.at();
  import.copy(vision, "patch_size", "patch_size");
  const Value* labels = config.find("id2label");
  if (labels != nullptr && !labels->members.empty())
    vision.set("classes", Value::of(static_cast<std::int64_t>(labels->members.size())));
  import.set("vision", std::move(vision));
  if (!config.flag("qkv_bias").value_or(true)) import.set("attention_biases", Value::of("none"));
  const Value* side = config.find("image_size");
  const Value* channels = config.find("num_channels");
  if (side == nullptr) return;
  Value size = Value::array();
  size.at = side->at;
  size.append(channels != nullptr ? *channels : Value::of(3));
  size.append(*side);
  size.append(*side);
  Value input = Value::object();
  input.at = side->at;
  input.set("image_size", std::move(size));
  import.set("input", std::move(input));
}

void latent_details(HuggingFaceImport& import) {
  if (import.config.find("kv_lora_rank") == nullptr) return;
  Value latent = Value::object();
  latent.at = import.config.at();
  import.copy(latent, "kv_lora_rank", "kv_rank");
  import.copy(latent, "q_lora_rank", "q_rank");
  import.copy(latent, "qk_nope_head_dim", "nope_head_dim");
  import.copy(latent, "qk_rope_head_dim", "rope_head_dim");
  import.copy(latent, "v_head_dim", "v_head_dim");
  import.set("latent_attention", std::move(latent));
}

void qwen3_details(HuggingFaceImport& import) {
  import.set("head_norm", Value::of("per_head"));
}

void glm4_details(HuggingFaceImport& import) {
  if (import.config.flag("use_qk_norm").value_or(false)) qwen3_details(import);
}

// Experts of the feed-forward size, with biases as the router has, and limits before their gate.
void gpt_oss_details(HuggingFaceImport& import) {
  import.set("attention_sinks", Value::of(true));
  Value* moe = import.model.find("moe");
  if (moe == nullptr) return;
  moe->set("biases", Value::of(true));
  if (import.config.number("swiglu_limit")) moe->set("clamped", Value::of(true));
}

// Caps of scores and logits are parts of the kernels that make them.
void gemma2_details(HuggingFaceImport& import) {
  import.set("block_norms", Value::of("around"));
  import.config.number("attn_logit_softcapping");
  import.config.number("final_logit_softcapping");
}

void gemma3_details(HuggingFaceImport& import) {
  gemma2_details(import);
  qwen3_details(import);
}

void olmo2_details(HuggingFaceImport& import) {
  import.set("block_norms", Value::of("after"));
  import.set("head_norm", Value::of("whole"));
}

void gpt_neox_details(HuggingFaceImport& import) {
  if (import.config.flag("use_parallel_residual").value_or(true))
    import.set("blocks", Value::of("parallel"));
}

// Its table of positions has two rows in front that no token reaches.
void opt_details(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  if (const auto positions = config.count("max_position_embeddings"))
    import.set("max_positions", Value::of(*positions + 2));
  const Value* narrow = config.find("word_embed_proj_dim");
  const Value* hidden = config.find("hidden_size|d_model");
  if (narrow != nullptr && hidden != nullptr && !json::same(*narrow, *hidden))
    config.error(narrow->at, "word_embed_proj_dim",
                 "an embedding of another width than the layers is not described");
  for (const std::string_view key : {"do_layer_norm_before", "layer_norm_elementwise_affine"}) {
    const Value* value = config.find(key);
    if (!config.flag(key).value_or(true))
      config.error(value->at, key, "false is not described", "true is");
  }
}

void bloom_details(HuggingFaceImport& import) {
  import.set("embedding_norm", Value::of(true));
  // Of Megatron-DeepSpeed's kernels, which trained it.
  for (const std::string_view key :
       {"bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi"})
    import.config.find(key);
}

// The 7B model has one head of keys and values and one norm, those after it as many as they say
// and two.
void falcon_details(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  const bool newer = config.flag("new_decoder_architecture").value_or(false);
  const bool one_head = config.flag("multi_query").value_or(true);
  const Value* heads = config.find("num_kv_heads|n_head_kv");
  if (newer && heads != nullptr)
    import.set("kv_heads", *heads);
  else if (!newer && one_head)
    import.set("kv_heads", Value::of(1));
  const std::int64_t norms = config.count("num_ln_in_parallel_attn").value_or(newer ? 2 : 1);
  if (config.flag("parallel_attn").value_or(true) || newer)
    import.set("blocks", Value::of(norms == 2 ? "parallel" : "parallel_one_norm"));
  if (config.flag("alibi").value_or(false)) import.set("positional", Value::of("alibi"));
}

// Experts, and one that all tokens visit, of one width; dense layers between them of another.
// Chunks of attention, and positions, in all layers but each n-th.
void llama4_details(HuggingFaceImport& import) {
  HuggingFaceConfig& config = import.config;
  if (Value* moe = import.model.find("moe")) {
    import.copy(*moe, "intermediate_size", "expert_ffn_hidden");
    moe->set("shared_experts", Value::of(1));
    import.copy(*moe, "interleave_moe_layer_step", "every");
    const std::int64_t every = at_least_one(config, "interleave_moe_layer_step");
    check_layers(import, "moe_layers",
                 [=](std::int64_t layer) { return (layer + 1) % every == 0; });
  }
  if (config.flag("use_qk_norm").value_or(true)) import.set("head_norm", Value::of("unweighted"));
  const std::int64_t interval = at_least_one(config, "no_rope_layer_interval");
  const Value* rotated = config.list("no_rope_layers");
  for (std::size_t i = 0; rotated != nullptr && i < rotated->items.size(); ++i) {
    const bool global = (static_cast<std::int64_t>(i) + 1) % interval == 0;
    if (json::find_integer(rotated->items[i]) == (global ? 0 : 1)) continue;
    config.error(rotated->items[i].at, "no_rope_layers",
                 fmt::format("positions in other layers than all but each {}-th are not described",
                             interval));
    return;
  }
  const Value* chunk = config.find("attention_chunk_size");
  if (chunk == nullptr) return;
  Value window = Value::object();
  window.at = chunk->at;
  window.set("size", *chunk);
  window.set("form", Value::of("chunks"));
  window.set("global_every", Value::of(interval));
  window.set("global_positions", Value::of(false));
  import.set("window", std::move(window));
}

// Its files name another activation of the code that they were made from.
void starcoder2_details(HuggingFaceImport& import) {
  import.config.find("activation_function");
  must_be(import, "mlp_type", "default");
  must_be(import, "norm_type", "layer_norm");
}

}  // namespace trainyard::scenario
