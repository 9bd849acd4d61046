// config.json of Hugging Face transformers, turned into the fields of /model. Every field keeps its
// place in that file.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/json/reader.h"
#include "sim/scenario/sources.h"

namespace trainyard::scenario {
namespace {

using json::Kind;
using json::Value;

// Which keys a family uses, and what it does not say because its code fixes it.
struct Family {
  std::string_view model_type;
  std::string_view layers, hidden, heads, ffn_hidden, positions, activation, dropout;
  std::string_view positional, norm;
  bool biases, tied;  // unless the file says otherwise
  std::string_view kind = "transformer";
};

constexpr std::array<Family, 14> kFamilies = {{
    {"gpt2", "n_layer", "n_embd", "n_head", "n_inner", "n_positions", "activation_function",
     "resid_pdrop", "learned", "layer_norm", true, true},
    {"llama", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"mistral", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"qwen2", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"qwen3", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"mixtral", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"qwen2_moe", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
     "", "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"qwen3_moe", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
     "", "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"deepseek_v2", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
     "", "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"deepseek_v3", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
     "", "hidden_act", "attention_dropout", "rope", "rms_norm", false, false},
    {"bert", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "hidden_act", "hidden_dropout_prob", "learned", "layer_norm", true,
     true, "encoder"},
    {"t5", "num_layers", "d_model", "num_heads", "d_ff", "", "", "dropout_rate", "relative",
     "rms_norm", false, true, "encoder_decoder"},
    {"mt5", "num_layers", "d_model", "num_heads", "d_ff", "", "", "dropout_rate", "relative",
     "rms_norm", false, false, "encoder_decoder"},
    {"vit", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "",
     "hidden_act", "hidden_dropout_prob", "learned", "layer_norm", true, true,
     "vision_transformer"},
}};

class Importer {
 public:
  Importer(const Value& config, std::vector<Diagnostic>& diagnostics)
      : config_(config), diagnostics_(diagnostics) {}

  Value run() {
    const Family* family = find_family();
    if (family == nullptr) return Value::null();
    model_ = Value::object();
    set("kind", Value::of(family->kind));
    const bool images = family->kind == "vision_transformer";
    copy(family->layers, "layers", true);
    copy(family->hidden, "hidden", true);
    copy(family->heads, "heads", true);
    copy("num_key_value_heads", "kv_heads", false);
    copy("head_dim", "head_dim", false);
    copy(family->ffn_hidden, "ffn_hidden", false);
    if (!images) copy("vocab_size", "vocab", true);
    copy(family->positions, "max_positions", false);
    if (family->kind == "encoder_decoder")
      encoder_decoder(*family);
    else
      activation(*family);
    if (family->kind == "encoder") encoder();
    if (images) vision();
    set("positional", Value::of(family->positional));
    set("norm", Value::of(family->norm));
    flag("attention_bias", "biases", family->biases);
    if (!images) flag("tie_word_embeddings", "tied_embeddings", family->tied);
    const Value* dropout = config_.find(family->dropout);
    set("dropout", Value::of(dropout != nullptr && json::find_number(*dropout).value_or(0) > 0));
    experts();
    latent_attention();
    return failed_ ? Value::null() : std::move(model_);
  }

 private:
  void error(const json::Place& at, std::string_view key, std::string message,
             std::string hint = {}) {
    failed_ = true;
    diagnostics_.push_back({Severity::error, at.position(), fmt::format("/{}", key),
                            std::move(message), std::move(hint)});
  }

  const Family* find_family() {
    const Value* type = config_.find("model_type");
    std::string known;
    for (const Family& family : kFamilies) {
      if (type != nullptr && type->text == family.model_type) return &family;
      known += fmt::format("{}{}", known.empty() ? "known: " : ", ", family.model_type);
    }
    if (type == nullptr)
      error(config_.at, "model_type", "is required and missing", known);
    else
      error(type->at, "model_type", fmt::format("unknown model_type {}", json::quoted(*type)),
            known);
    return nullptr;
  }

  void set(std::string_view key, Value value) {
    if (value.at.file == nullptr) value.at = config_.at;
    model_.set(key, std::move(value));
  }

  void copy(std::string_view from, std::string_view to, bool required) {
    const Value* value = from.empty() ? nullptr : config_.find(from);
    if (value != nullptr && !value->is(Kind::null))
      set(to, *value);
    else if (required)
      error(config_.at, from, "is required and missing");
  }

  void flag(std::string_view from, std::string_view to, bool otherwise) {
    const Value* value = config_.find(from);
    set(to, value != nullptr && value->is(Kind::boolean) ? *value : Value::of(otherwise));
  }

  // The first of these keys that the file has, or nullptr; `found` names it.
  const Value* first_of(std::initializer_list<std::string_view> keys, std::string_view& found) {
    for (const std::string_view key : keys) {
      const Value* value = config_.find(key);
      if (value == nullptr || value->is(Kind::null)) continue;
      found = key;
      return value;
    }
    return nullptr;
  }

  void put(Value& section, std::string_view from, std::string_view to) {
    const Value* value = config_.find(from);
    if (value != nullptr && !value->is(Kind::null)) section.set(to, *value);
  }

  void experts() {
    std::string_view key;
    const Value* count = first_of({"num_local_experts", "num_experts", "n_routed_experts"}, key);
    if (count == nullptr) return;
    Value moe = Value::object();
    moe.at = count->at;
    moe.set("experts", *count);
    put(moe, "num_experts_per_tok", "top_k");
    if (moe.find("top_k") == nullptr)
      error(config_.at, "num_experts_per_tok", "is required and missing");
    put(moe, "moe_intermediate_size", "expert_ffn_hidden");
    put(moe, "n_shared_experts", "shared_experts");
    put(moe, "shared_expert_intermediate_size", "shared_ffn_hidden");
    put(moe, "first_k_dense_replace", "first_dense");
    put(moe, "decoder_sparse_step", "every");
    put(moe, "moe_layer_freq", "every");
    // A router that is greedy over all experts ignores its groups.
    const Value* method = config_.find("topk_method");
    if (method == nullptr || method->text != "greedy") {
      put(moe, "n_group", "groups");
      put(moe, "topk_group", "top_groups");
    }
    if (const Value* dense = config_.find("mlp_only_layers");
        dense != nullptr && !dense->items.empty())
      error(dense->at, "mlp_only_layers",
            "dense layers between layers of experts are not supported",
            "describe the network with moe.first_dense and moe.every");
    set("moe", std::move(moe));
  }

  void latent_attention() {
    if (config_.find("kv_lora_rank") == nullptr) return;
    Value latent = Value::object();
    put(latent, "kv_lora_rank", "kv_rank");
    put(latent, "q_lora_rank", "q_rank");
    put(latent, "qk_nope_head_dim", "nope_head_dim");
    put(latent, "qk_rope_head_dim", "rope_head_dim");
    put(latent, "v_head_dim", "v_head_dim");
    set("latent_attention", std::move(latent));
  }

  // BERT's class for masked tokens alone has no second head; every other one is taken to be that of
  // pre-training.
  void encoder() {
    Value heads = Value::object();
    heads.at = config_.at;
    put(heads, "type_vocab_size", "token_types");
    const Value* classes = config_.find("architectures");
    if (classes != nullptr && classes->items.size() == 1 &&
        classes->items[0].text == "BertForMaskedLM")
      heads.set("next_sentence", Value::of(false));
    set("encoder", std::move(heads));
  }

  void encoder_decoder(const Family& family) {
    copy("d_kv", "head_dim", true);
    copy("relative_attention_num_buckets", "position_buckets", false);
    const Value* feed_forward = config_.find("feed_forward_proj");
    const std::string_view usual = family.tied ? "relu" : "gated-gelu";
    const std::string_view name =
        feed_forward != nullptr ? std::string_view(feed_forward->text) : usual;
    if (name == "relu" || name == "gated-gelu")
      set("ffn", Value::of(name == "relu" ? "relu" : "geglu"));
    else
      error(feed_forward->at, "feed_forward_proj",
            fmt::format("unknown feed-forward layer {}", json::quoted(*feed_forward)));
    const Value* layers = config_.find("num_decoder_layers");
    if (layers == nullptr || layers->is(Kind::null)) return;
    Value decoder = Value::object();
    decoder.at = layers->at;
    decoder.set("layers", *layers);
    set("decoder", std::move(decoder));
  }

  void vision() {
    Value vision = Value::object();
    vision.at = config_.at;
    put(vision, "patch_size", "patch_size");
    const Value* labels = config_.find("id2label");
    if (labels != nullptr && !labels->members.empty())
      vision.set("classes", Value::of(static_cast<std::int64_t>(labels->members.size())));
    set("vision", std::move(vision));
    const Value* side = config_.find("image_size");
    if (side == nullptr) return;
    const Value* channels = config_.find("num_channels");
    Value size = Value::array();
    size.at = side->at;
    size.append(channels != nullptr ? *channels : Value::of(3));
    size.append(*side);
    size.append(*side);
    Value input = Value::object();
    input.at = side->at;
    input.set("image_size", std::move(size));
    set("input", std::move(input));
  }

  void activation(const Family& family) {
    const Value* value = config_.find(family.activation);
    const std::string name = value != nullptr ? value->text : "";
    const bool gated = family.positional == "rope";
    const bool gelu = name.substr(0, 4) == "gelu";
    Value ffn;
    if (gated && (name == "silu" || name == "swish" || name.empty()))
      ffn = Value::of("swiglu");
    else if (gated && gelu)
      ffn = Value::of("geglu");
    else if (!gated && (gelu || name.empty()))
      ffn = Value::of("gelu");
    else if (!gated && name == "relu")
      ffn = Value::of("relu");
    else
      error(value->at, family.activation,
            fmt::format("unknown activation {}", json::quoted(*value)));
    set("ffn", std::move(ffn));
  }

  const Value& config_;
  std::vector<Diagnostic>& diagnostics_;
  Value model_;
  bool failed_ = false;
};

}  // namespace

Value from_hugging_face(const Value& config, std::vector<Diagnostic>& diagnostics) {
  return Importer(config, diagnostics).run();
}

}  // namespace trainyard::scenario
