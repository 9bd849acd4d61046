// config.json of Hugging Face transformers, turned into the fields of /model. Every field keeps its
// place in that file.
#include <fmt/format.h>

#include <utility>

#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/model/hugging_face/families.h"

namespace trainyard::scenario {

using json::Value;

void HuggingFaceImport::set(std::string_view key, Value value) {
  if (value.at.file == nullptr) value.at = config.at();
  model.set(key, std::move(value));
}

void HuggingFaceImport::copy(std::string_view from, std::string_view to, bool is_required) {
  const Value* value = config.find(from);
  if (value != nullptr)
    set(to, *value);
  else if (is_required)
    config.missing(from);
}

void HuggingFaceImport::copy(Value& section, std::string_view from, std::string_view to) {
  if (const Value* value = config.find(from)) section.set(to, *value);
}

void import_activation(HuggingFaceImport& import) {
  const HuggingFaceFamily& family = import.family;
  const Value* value = import.config.find(family.activation);
  const std::string name = import.config.text(family.activation);
  const bool gelu = name.substr(0, 4) == "gelu" || name == "quick_gelu";
  const bool usual = name.empty();
  if (family.gated && (name == "silu" || name == "swish" || usual))
    import.set("ffn", Value::of("swiglu"));
  else if (family.gated && gelu)
    import.set("ffn", Value::of("geglu"));
  else if (!family.gated && (gelu || usual))
    import.set("ffn", Value::of("gelu"));
  else if (!family.gated && name == "relu")
    import.set("ffn", Value::of("relu"));
  else if (!family.gated && name == "relu2")
    import.set("ffn", Value::of("squared_relu"));
  else
    import.config.error(value->at, import.config.name_of(family.activation),
                        fmt::format("unknown activation {}", json::quoted(*value)),
                        family.gated ? "known: silu, gelu" : "known: gelu, relu, relu2");
}

void import_biases(HuggingFaceImport& import) {
  const BiasRule& rule = import.family.biases;
  const bool attention = import.config.flag(rule.attention_key).value_or(rule.attention);
  const bool ffn = import.config.flag(rule.ffn_key).value_or(rule.ffn);
  import.set("biases", Value::of(ffn));
  const bool whole = rule.attention_layers == "all";
  if (attention != ffn || (attention && !whole))
    import.set("attention_biases", Value::of(attention ? rule.attention_layers : "none"));
}

namespace {

// The rows of a decoder and of an encoder; the T5 kind says most of it in other words.
void import_stack(HuggingFaceImport& import) {
  const HuggingFaceFamily& family = import.family;
  HuggingFaceConfig& config = import.config;
  const bool images = family.kind == "vision_transformer";
  import.set("kind", Value::of(family.kind));
  import.copy(family.layers, "layers", !family.layers.empty());
  import.copy(family.hidden, "hidden", true);
  import.copy(family.heads, "heads", true);
  import.copy(family.kv_heads, "kv_heads");
  import.copy("head_dim", "head_dim");
  import.copy(family.ffn_hidden, "ffn_hidden");
  if (!images) import.copy("vocab_size", "vocab", true);
  import.copy(family.max_positions, "max_positions");
  import.set("positional", Value::of(family.positional));
  import.set("norm", Value::of(family.norm));
  if (family.kind != "encoder_decoder") import_activation(import);
  import_biases(import);
  if (!images) {
    const std::optional<bool> tied = config.flag("tie_word_embeddings");
    import.set("tied_embeddings", Value::of(tied.value_or(true)));
  }
  const bool drops = config.any_above_zero(family.dropout),
             drops_scores = config.any_above_zero(family.score_dropout);
  import.set("dropout", Value::of(drops));
  if (drops_scores != drops) import.set("attention_dropout", Value::of(drops_scores));
  import_experts(import);
  import_windows(import);
  if (family.details != nullptr) family.details(import);
}

// transformers leaves them out as well: they are trained beside the network, not in it.
void warn_of_prediction_layers(HuggingFaceConfig& config) {
  const Value* layers = config.find("num_nextn_predict_layers");
  if (layers != nullptr && json::find_number(*layers) != 0.0)
    config.warning(layers->at, "num_nextn_predict_layers",
                   "layers that predict further tokens are not described; the network is the main "
                   "model alone");
}

const HuggingFaceFamily* find_family(HuggingFaceConfig& config, const std::string& type) {
  std::string known;
  for (const HuggingFaceFamily& family : hugging_face_families()) {
    if (family.model_type == type) return &family;
    known += fmt::format("{}{}", known.empty() ? "known: " : ", ", family.model_type);
  }
  const Value* value = config.find("model_type");
  if (value == nullptr) {
    config.missing("model_type", known);
    return nullptr;
  }
  const std::string_view layers = missing_layers_of(type);
  if (layers.empty())
    config.error(value->at, "model_type",
                 fmt::format("unknown model_type {}", json::quoted(*value)), known);
  else
    config.error(value->at, "model_type",
                 fmt::format("{} has layers that are not described: {}", type, layers),
                 "kind \"layers\" takes any operation with its bytes or its time");
  return nullptr;
}

// The file with what its class takes where the file is silent.
Value with_defaults(const Value& object, std::string_view defaults) {
  std::vector<Diagnostic> none;
  Value whole = object;
  for (json::Member& member : json::parse_text(defaults, "", none).members) {
    if (whole.find(member.key) != nullptr) continue;
    member.value.at = object.at;
    whole.set(member.key, std::move(member.value));
  }
  return whole;
}

Value import_text(const Value& object, const std::string& pointer, const std::string& type,
                  std::vector<Diagnostic>& diagnostics) {
  HuggingFaceConfig named(object, pointer, diagnostics);
  const HuggingFaceFamily* family = find_family(named, type);
  if (family == nullptr) return Value::null();
  const Value whole = with_defaults(object, family->defaults);
  HuggingFaceConfig config(whole, pointer, diagnostics);
  HuggingFaceImport import{config, *family, Value::object()};
  import_stack(import);
  warn_of_prediction_layers(config);
  config.judge_the_rest(type);
  return config.failed() ? Value::null() : std::move(import.model);
}

// The wrapper of a network of text and images: its text part, and what it says of that.
Value import_wrapper(const Value& config, const Value& text, std::vector<Diagnostic>& diagnostics) {
  HuggingFaceConfig outer(config, "", diagnostics);
  outer.find("text_config");
  const std::string type = outer.text("model_type");
  Value inner = text;
  const Value* tied = outer.find("tie_word_embeddings");
  if (tied != nullptr && inner.find("tie_word_embeddings") == nullptr)
    inner.set("tie_word_embeddings", *tied);
  for (const std::string_view part : {"vision_config", "audio_config"}) {
    const Value* found = outer.find(part);
    if (found != nullptr && !found->members.empty())
      outer.warning(found->at, part,
                    "is not described; the network is the part of text_config alone");
  }
  for (const std::string_view key :
       {"projection_dim", "projector_hidden_act", "multimodal_projector_bias",
        "vision_feature_layer", "vision_feature_select_strategy", "image_seq_length"})
    outer.find(key);  // of the parts that are left out
  outer.judge_the_rest(type);
  const Value* own = text.find("model_type");
  const std::string name = own != nullptr ? own->text : type + "_text";
  Value model = import_text(inner, "/text_config", name, diagnostics);
  return outer.failed() ? Value::null() : model;
}

}  // namespace

Value from_hugging_face(const Value& config, std::vector<Diagnostic>& diagnostics) {
  const Value* text = config.find("text_config");
  if (text != nullptr && text->is(json::Kind::object))
    return import_wrapper(config, *text, diagnostics);
  const Value* type = config.find("model_type");
  return import_text(config, "", type != nullptr ? type->text : "", diagnostics);
}

}  // namespace trainyard::scenario
