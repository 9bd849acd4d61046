// /model: small networks of every kind.
#include <algorithm>
#include <string>

#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using json::Value;

namespace {

Value numbers(std::initializer_list<int> list) {
  Value array = Value::array();
  for (const int number : list)
    array.append(Value::of(number));
  return array;
}

// Sizes that the tensor-parallel ranks can divide.
void draw_widths(Sketch& s) {
  Draw& draw = s.draw;
  const int groups = s.tensor * (s.ulysses ? s.context : 1);
  const int kv_heads = groups * draw.pick({1, 1, 2});
  const int heads = kv_heads * draw.pick({1, 1, 2, 4});
  const int head = draw.pick({16, 32, 64, 64, 128});
  s.set("/model/heads", heads);
  if (kv_heads != heads || draw.chance(20)) s.set("/model/kv_heads", kv_heads);
  const bool apart = draw.chance(15);
  s.set("/model/hidden", apart ? 64 * draw.between(1, 8) : heads * head);
  if (apart || draw.chance(10)) s.set("/model/head_dim", head);
  if (draw.chance(60) || s.tensor % 2 != 0 || apart)
    s.set("/model/ffn_hidden", s.tensor * 64 * draw.between(1, 12));
}

void draw_experts(Sketch& s) {
  if (!s.experts) return;
  Draw& draw = s.draw;
  const int groups = draw.pick({1, 1, 1, 2, 4});
  const int experts = s.expert_ranks * groups * draw.pick({1, 2, 4});
  s.set("/model/moe/experts", experts);
  const int chosen = groups > 1 ? draw.between(1, groups) : 1;
  s.set("/model/moe/top_k", draw.between(1, std::min(8, chosen * (experts / groups))));
  if (groups > 1) {
    s.set("/model/moe/groups", groups);
    s.set("/model/moe/top_groups", chosen);
  }
  s.set("/model/moe/expert_ffn_hidden", s.tensor * s.expert_tensor * 32 * draw.between(1, 6));
  const bool shares = draw.chance(30);
  if (shares) s.set("/model/moe/shared_experts", draw.between(1, 2));
  if (draw.chance(10)) s.set("/model/moe/shared_ffn_hidden", s.tensor * 64);
  if (!s.hybrid && draw.chance(30)) s.set("/model/moe/first_dense", draw.between(0, s.layers));
  if (!s.hybrid && draw.chance(20)) s.set("/model/moe/every", 2);
  if (draw.chance(20)) s.set("/model/moe/balance_bias", draw.chance(50));
  if (draw.chance(10)) s.set("/model/moe/biases", draw.chance(50));
  if (draw.chance(10)) s.set("/model/moe/clamped", draw.chance(50));
  if (shares && draw.chance(20)) s.set("/model/moe/shared_gate", true);
}

// Norms and blocks that only fused kernels have.
void draw_blocks(Sketch& s) {
  Draw& draw = s.draw;
  if (draw.chance(6)) s.set("/model/embedding_norm", draw.chance(70));
  if (draw.chance(8))
    s.set("/model/block_norms", draw.word({"before", "around", "after"}));
  else if (!s.experts && draw.chance(8))
    s.set("/model/blocks", draw.word({"sequential", "parallel", "parallel_one_norm"}));
}

// What families of published networks add to a layer.
void draw_details(Sketch& s) {
  Draw& draw = s.draw;
  const bool plain = !s.latent;
  if (plain && draw.chance(8)) s.set("/model/attention_biases", draw.word({"none", "qkv", "all"}));
  if (plain && !s.experts && draw.chance(6)) s.set("/model/ffn_biases", draw.chance(50));
  if (plain && draw.chance(8))
    s.set("/model/head_norm",
          s.tensor > 1 ? draw.word({"per_head", "unweighted"}) : draw.word({"per_head", "whole"}));
  if (s.kind != Kind::decoder) return;
  if (plain && draw.chance(6)) s.set("/model/attention_sinks", draw.chance(70));
  if (s.hybrid) return;
  if (s.execution == "fused") draw_blocks(s);
  if (!plain || (s.context > 1 && !s.ulysses) || !draw.chance(12)) return;
  s.set("/model/window/size", draw.pick({16, 64, 4096}));
  if (draw.chance(50)) s.set("/model/window/first", draw.between(0, s.layers));
  if (draw.chance(50)) s.set("/model/window/global_every", draw.between(1, 4));
  if (draw.chance(30)) s.set("/model/window/form", draw.word({"sliding", "chunks"}));
  if (draw.chance(30)) s.set("/model/window/global_positions", draw.chance(50));
}

void draw_latent(Sketch& s) {
  if (!s.latent) return;
  s.set("/model/latent_attention/kv_rank", 32 * s.draw.between(1, 8));
  if (s.draw.chance(60)) s.set("/model/latent_attention/q_rank", 64 * s.draw.between(0, 4));
  s.set("/model/latent_attention/nope_head_dim", 32 * s.draw.between(1, 4));
  s.set("/model/latent_attention/rope_head_dim", 16 * s.draw.between(1, 4));
  s.set("/model/latent_attention/v_head_dim", 32 * s.draw.between(1, 4));
}

// Layers of one part each.
void draw_hybrid(Sketch& s) {
  if (!s.hybrid) return;
  Draw& draw = s.draw;
  std::string pattern;
  for (int layer = 0; layer < s.layers; ++layer)
    pattern += draw.word({"M", "*", s.experts ? "E" : "-"});
  if (s.experts) pattern.back() = 'E';
  s.set("/model/layer_pattern", pattern);
  if (pattern.find('M') == std::string::npos) return;
  const int groups = s.tensor * s.context * draw.pick({1, 1, 2});
  s.set("/model/mamba/heads", groups * draw.pick({1, 2, 4}));
  if (groups > 1 || draw.chance(20)) s.set("/model/mamba/groups", groups);
  if (draw.chance(40)) s.set("/model/mamba/head_dim", draw.pick({16, 64, 80}));
  if (draw.chance(40)) s.set("/model/mamba/state_dim", draw.pick({16, 64, 256}));
  if (draw.chance(20)) s.set("/model/mamba/conv_kernel", 4);
  if (draw.chance(40)) s.set("/model/mamba/chunk", draw.pick({16, 64, 256}));
}

void draw_vocabulary(Sketch& s) {
  Draw& draw = s.draw;
  s.set("/model/vocab", draw.pick({1000, 32000, 50257, 4096}));
  if (draw.chance(40)) s.set("/model/tied_embeddings", draw.chance(50));
  if (s.kind == Kind::encoder_decoder) {
    const std::string how = draw.word({"relative", "rope", "none"});
    s.set("/model/positional", how);
    if (how == "relative" && draw.chance(40)) s.set("/model/position_buckets", 64);
    return;
  }
  const bool alibi = s.kind == Kind::decoder && draw.chance(5);
  if (alibi) s.set("/model/positional", "alibi");
  if (!alibi && draw.chance(70)) s.set("/model/positional", draw.word({"learned", "rope", "none"}));
  if (draw.chance(10)) s.set("/model/max_positions", 8192);
}

void draw_stack(Sketch& s) {
  Draw& draw = s.draw;
  if (s.kind == Kind::decoder && draw.chance(30)) s.set("/model/kind", "transformer");
  if (s.kind == Kind::encoder) s.set("/model/kind", "encoder");
  if (s.kind == Kind::encoder_decoder) s.set("/model/kind", "encoder_decoder");
  if (s.kind == Kind::vision) s.set("/model/kind", "vision_transformer");
  int layers = s.layers;
  if (s.kind == Kind::encoder_decoder && layers > 1 && draw.chance(70)) {
    layers = draw.between(1, s.layers - 1);
    s.set("/model/decoder/layers", s.layers - layers);
  }
  s.set("/model/layers", layers);
  draw_widths(s);
  if (draw.chance(50))
    s.set("/model/ffn", draw.word({"gelu", "relu", "squared_relu", "swiglu", "geglu"}));
  if (draw.chance(50)) s.set("/model/norm", draw.word({"layer_norm", "rms_norm"}));
  if (s.experts || s.latent || draw.chance(40))
    s.set("/model/biases", !s.experts && !s.latent && draw.chance(50));
  if (draw.chance(50)) s.set("/model/dropout", draw.chance(50));
  if (draw.chance(15)) s.set("/model/attention_dropout", draw.chance(50));
  if (s.kind != Kind::vision) draw_vocabulary(s);
  draw_experts(s);
  draw_latent(s);
  draw_hybrid(s);
  draw_details(s);
}

void draw_encoder(Sketch& s) {
  if (s.draw.chance(40)) s.set("/model/encoder/norm_position", s.draw.word({"post", "pre"}));
  if (s.draw.chance(30)) s.set("/model/encoder/token_types", s.draw.between(0, 2));
  if (s.draw.chance(30)) s.set("/model/encoder/next_sentence", s.draw.chance(50));
  if (s.draw.chance(20)) s.set("/model/encoder/masked_lm", s.draw.chance(70));
}

void draw_vision(Sketch& s) {
  const int patch = s.draw.pick({8, 16, 32});
  const int side = patch * s.draw.between(2, 8);
  s.set("/model/input/image_size", numbers({3, side, side}));
  if (patch != 16 || s.draw.chance(50)) s.set("/model/vision/patch_size", patch);
  if (s.draw.chance(50)) s.set("/model/vision/classes", 1000);
  if (s.draw.chance(50)) s.set("/model/vision/class_token", s.draw.chance(50));
}

void draw_recommender(Sketch& s) {
  Draw& draw = s.draw;
  s.set("/model/kind", "recommender");
  const int width = 16 * draw.pick({1, 2, 4, 8});
  s.set("/model/dense_features", draw.between(1, 64));
  s.set("/model/embedding_dim", width);
  const std::string interaction = draw.word({"dot", "cat", "dcn"});
  Value tables = Value::array();
  for (int groups = draw.between(1, 5); groups > 0; --groups) {
    Value table = Value::object();
    table.set("rows", Value::of(draw.pick({10, 1000, 100000, 5000000})));
    if (draw.chance(50)) table.set("count", Value::of(draw.between(1, 8)));
    if (draw.chance(50)) table.set("lookups", Value::of(draw.between(1, 40)));
    if (interaction != "dot" && draw.chance(20)) table.set("dim", Value::of(2 * width));
    tables.append(std::move(table));
  }
  s.set("/model/tables", tables);
  s.set("/model/bottom_mlp", numbers({128, width}));
  s.set("/model/top_mlp", numbers({256, 64, 1}));
  if (draw.chance(70) || interaction != "dot") s.set("/model/interaction", interaction);
  if (interaction == "dcn") {
    s.set("/model/cross_layers", draw.between(1, 3));
    s.set("/model/cross_rank", draw.pick({16, 64}));
  }
  if (draw.chance(40)) s.set("/model/table_dtype", draw.word({"fp32", "fp16", "bf16"}));
}

Value operation(const char* op) {
  Value row = Value::object();
  row.set("op", Value::of(op));
  return row;
}

Value image_layer(Sketch& s, int channels) {
  Value ops = Value::array();
  Value convolution = operation("conv");
  convolution.set("out", Value::of(channels));
  convolution.set("kernel", Value::of(3));
  convolution.set("padding", Value::of(1));
  ops.append(std::move(convolution));
  if (s.draw.chance(60)) ops.append(operation(s.draw.word({"batch_norm", "group_norm"})));
  ops.append(operation(s.draw.word({"relu", "gelu", "hardswish", "sigmoid"})));
  return ops;
}

Value flat_layer(Sketch& s, int in, int out) {
  Value ops = Value::array();
  Value product = operation("linear");
  product.set("in", Value::of(in));
  product.set("out", Value::of(out));
  if (s.draw.chance(50)) product.set("bias", Value::of(true));
  ops.append(std::move(product));
  ops.append(operation(s.draw.word({"relu", "dropout", "tanh"})));
  return ops;
}

Value names(std::initializer_list<std::string> all) {
  Value list = Value::array();
  for (const std::string& name : all)
    list.append(Value::of(name));
  return list;
}

// Of equal sizes: joins what an earlier layer hands on.
Value joined(Sketch& s, int layer, Value ops, Value& of) {
  const int other = s.draw.between(0, layer - 2);
  of.set("after", names({"layer" + std::to_string(layer - 1), "layer" + std::to_string(other)}));
  Value join = operation("add");
  join.set("after", names({"inputs"}));
  Value all = Value::array();
  all.append(std::move(join));
  for (const Value& op : ops.items)
    all.append(op);
  return all;
}

void draw_layers(Sketch& s) {
  Draw& draw = s.draw;
  if (draw.chance(30)) s.set("/model/cut", draw.word({"branches", "branches", "layers"}));
  s.set("/model/kind", "layers");
  const bool images = draw.chance(60);
  const int width = 16 * draw.between(1, 8);
  if (images)
    s.set("/model/input/image_size", numbers({3, 32, 32}));
  else
    s.set("/model/input/shape", numbers({width}));
  Value layers = Value::array();
  for (int i = 0; i < s.layers; ++i) {
    Value layer = Value::object();
    layer.set("name", Value::of("layer" + std::to_string(i)));
    Value ops = images ? image_layer(s, width) : flat_layer(s, width, width);
    if (i >= 2 && draw.chance(30)) ops = joined(s, i, std::move(ops), layer);
    if (i + 1 == s.layers) {
      if (images) {
        Value pool = operation("avg_pool");
        pool.set("to", numbers({1, 1}));
        ops.append(std::move(pool));
      }
      Value product = operation("linear");
      product.set("in", Value::of(width));
      product.set("out", Value::of(10));
      ops.append(std::move(product));
      ops.append(operation("loss"));
    }
    layer.set("ops", std::move(ops));
    layers.append(std::move(layer));
  }
  s.set("/model/layers", layers);
}

// The same stack by the words of another library, in a file of its own.
void as_hugging_face(Sketch& s) {
  Value config = Value::object();
  config.set("model_type", Value::of("llama"));
  const Value* model = s.plan.scenario.find("model");
  const auto copy = [&](const char* from, const char* to) {
    if (const Value* value = model->find(from)) config.set(to, *value);
  };
  copy("layers", "num_hidden_layers");
  copy("hidden", "hidden_size");
  copy("heads", "num_attention_heads");
  copy("kv_heads", "num_key_value_heads");
  copy("head_dim", "head_dim");
  copy("vocab", "vocab_size");
  copy("tied_embeddings", "tie_word_embeddings");
  config.set("hidden_act", Value::of("silu"));
  const Value* ffn = model->find("ffn_hidden");
  config.set("intermediate_size", ffn != nullptr ? *ffn : Value::of(64 * s.tensor));
  s.plan.files.push_back({"config.json", json::to_text(config) + "\n"});
  Value reference = Value::object();
  reference.set("hf_config", Value::of("config.json"));
  s.plan.scenario.set("model", std::move(reference));
}

}  // namespace

void draw_network(Sketch& s) {
  if (!s.preset.empty()) {
    s.set("/model/preset", s.preset);
    if (s.stack() && s.preset != "vit-b-16" && s.preset != "t5-small" && s.draw.chance(70))
      s.set("/model/layers", s.layers);
    return;
  }
  if (s.kind == Kind::recommender) return draw_recommender(s);
  if (s.kind == Kind::layers) return draw_layers(s);
  draw_stack(s);
  if (s.kind == Kind::encoder) draw_encoder(s);
  if (s.kind == Kind::vision) draw_vision(s);
  if (s.kind == Kind::decoder && !s.experts && !s.latent && s.draw.chance(8)) as_hugging_face(s);
}

}  // namespace trainyard::fuzz
