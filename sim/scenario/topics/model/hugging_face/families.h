// The families of networks that transformers names by model_type, one row each.
#pragma once

#include <span>
#include <string_view>

#include "sim/scenario/topics/model/hugging_face/config.h"

namespace trainyard::scenario {

// A config on its way to the fields of /model.
struct HuggingFaceImport;

// Biases of linear layers. A key that is empty is one that the family does not have: its class
// decides.
struct BiasRule {
  std::string_view attention_key = "";
  bool attention = false;                     // unless the file says otherwise
  std::string_view attention_layers = "all";  // which ones have them: qkv or all
  std::string_view ffn_key = "";
  bool ffn = false;
};

// Which layers have the file's sliding_window.
struct WindowRule {
  enum class Kind : std::uint8_t {
    none,       // the class ignores the key
    mixers,     // ... and its layer_types tell what else than attention layers have
    all,        // every layer
    by_flag,    // use_sliding_window; layers from max_window_layers on
    alternate,  // every layer but each n-th, n from `every_key` or `every`
  };
  Kind kind = Kind::none;
  std::string_view every_key = "";
  int every = 0;
};

// What a class of transformers reads, with its names, and what its code fixes.
struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view kind = "transformer";
  std::string_view layers = "num_hidden_layers";  // empty: a list's length
  std::string_view hidden = "hidden_size";
  std::string_view heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view ffn_hidden = "intermediate_size";
  std::string_view max_positions = "";  // rows of a learned table
  std::string_view activation = "hidden_act|hidden_activation";
  std::string_view dropout = "";  // of what blocks and embeddings hand on
  std::string_view score_dropout = "attention_dropout";
  std::string_view positional = "rope";
  std::string_view norm = "rms_norm";
  bool gated = true;  // the feed-forward layer has a gate
  bool mixture = false;
  bool balance_bias = false;  // of experts
  bool shared_gate = false;
  BiasRule biases = {};
  WindowRule windows = {};
  // Values that the class takes where the file has none, as JSON: files are written without them.
  std::string_view defaults = "{}";
  void (*details)(HuggingFaceImport&) = nullptr;  // what only this family has
};

struct HuggingFaceImport {
  HuggingFaceConfig& config;
  const HuggingFaceFamily& family;
  json::Value model;  // of /model

  void set(std::string_view key, json::Value value);
  // A key of the file becomes a field of `section`, or of the model.
  void copy(std::string_view from, std::string_view to, bool is_required = false);
  void copy(json::Value& section, std::string_view from, std::string_view to);
};

std::span<const HuggingFaceFamily> hugging_face_families();

// A family that is not described, and what it has that no network here has; empty: not known.
std::string_view missing_layers_of(std::string_view model_type);

// Parts that several families have.
void import_activation(HuggingFaceImport& import);
void import_biases(HuggingFaceImport& import);
void import_experts(HuggingFaceImport& import);
void import_windows(HuggingFaceImport& import);

// The rows' own parts (details.cpp).
void gpt2_details(HuggingFaceImport& import);
void bert_details(HuggingFaceImport& import);
void t5_details(HuggingFaceImport& import);
void vit_details(HuggingFaceImport& import);
void latent_details(HuggingFaceImport& import);
void qwen3_details(HuggingFaceImport& import);
void glm4_details(HuggingFaceImport& import);
void gpt_oss_details(HuggingFaceImport& import);
void gemma2_details(HuggingFaceImport& import);
void gemma3_details(HuggingFaceImport& import);
void olmo2_details(HuggingFaceImport& import);
void gpt_neox_details(HuggingFaceImport& import);
void opt_details(HuggingFaceImport& import);
void bloom_details(HuggingFaceImport& import);
void falcon_details(HuggingFaceImport& import);
void llama4_details(HuggingFaceImport& import);
void starcoder2_details(HuggingFaceImport& import);

// Those of Mamba's layers (hybrids.cpp).
void nemotron_h_details(HuggingFaceImport& import);
void mamba2_details(HuggingFaceImport& import);
void bamba_details(HuggingFaceImport& import);
void granite_hybrid_details(HuggingFaceImport& import);

}  // namespace trainyard::scenario
