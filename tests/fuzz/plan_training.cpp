// /training: number formats, the optimizer, recomputation, offloading and what a device holds
// besides.
#include <string>

#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using json::Value;

namespace {

void draw_precision(Sketch& s) {
  Draw& draw = s.draw;
  std::string compute = s.has_bf16 ? draw.word({"bf16", "bf16", "bf16", "fp16", "tf32", "fp32"})
                                   : draw.word({"fp16", "fp16", "fp32"});
  const bool one_process = s.strategy == "nn_data_parallel";
  if (s.has_fp8 && !one_process && draw.chance(30)) compute = "fp8";
  s.set("/training/precision/compute", compute);
  s.compute_fp8 = compute == "fp8";
  const bool narrow = compute != "fp32" && compute != "tf32";
  s.narrow = narrow;
  bool fp8_weights = false;
  if (compute == "fp8" && draw.chance(30)) {
    fp8_weights = draw.chance(60);
    s.set("/training/precision/parameters", fp8_weights ? "fp8" : "bf16");
  }
  const bool gathers = s.strategy == "fsdp" || s.strategy == "hsdp";
  s.autocast = narrow && compute != "fp8" && s.execution == "eager" && s.stack() && !s.experts &&
               !s.hybrid && !s.latent && s.kind != Kind::encoder_decoder && s.tensor == 1 &&
               !gathers && draw.chance(40);
  if (s.autocast) s.set("/training/precision/parameters", "fp32");
  if (!s.autocast && draw.chance(40))
    s.set("/training/precision/gradients", draw.word({"fp32", "bf16", "fp16"}));
  std::string master = "fp32";
  if (!s.autocast && draw.chance(40)) {
    master = fp8_weights ? draw.word({"fp32", "bf16"}) : draw.word({"fp32", "none"});
    const bool halves = compute == "bf16" || (compute == "fp8" && !fp8_weights);
    if (halves && !gathers && draw.chance(30)) master = "remainder";
    s.set("/training/precision/master_weights", master);
  }
  if (compute == "fp8" && !fp8_weights && draw.chance(30))
    s.set("/training/precision/cached_fp8_weights", true);
  if (compute == "fp8" && draw.chance(30))
    s.set("/training/precision/kept_fp8_inputs", draw.chance(50));
  if (compute == "fp8" && draw.chance(40)) {
    const std::string scales = draw.word({"delayed", "current", "rowwise", "blockwise"});
    s.set("/training/precision/fp8_recipe", scales);
    if (scales == "delayed" && draw.chance(70))
      s.set("/training/precision/fp8_amax_reduction", draw.word({"stage", "replica"}));
  }
  if (compute == "fp8" && draw.chance(20))
    s.set("/training/precision/fp8_transposes", draw.chance(50));
  const std::string optimizer = draw.word({"adam", "adam", "adamw", "lamb", "lion", "sgd", "none"});
  s.set("/training/optimizer/type", optimizer);
  const bool momentum = optimizer == "sgd" && draw.chance(50);
  if (momentum) s.set("/training/optimizer/momentum", true);
  if (draw.chance(10)) s.set("/training/optimizer/waits", draw.chance(80));
  if (draw.chance(15)) {
    s.set("/training/optimizer/accesses", 39);
    if (draw.chance(50)) s.set("/training/optimizer/launches", 1.1);
  }
  s.updates = optimizer != "none";
  if (((optimizer != "sgd" && s.updates) || momentum) && narrow && draw.chance(15))
    s.set("/training/precision/optimizer_states", draw.word({"fp32", "bf16", "fp8"}));
}

void draw_modules(Sketch& s) {
  Value modules = Value::array();
  for (const char* name : {"core_attn", "mlp", "layernorm"})
    if (s.draw.chance(40)) modules.append(Value::of(name));
  if (s.experts && s.draw.chance(40)) modules.append(Value::of(s.draw.word({"moe", "moe_act"})));
  if (s.latent && s.draw.chance(40)) modules.append(Value::of("mla_up_proj"));
  if (!modules.items.empty()) s.set("/training/recompute/modules", modules);
  if (!modules.items.empty() && s.draw.chance(60)) return;
  s.set("/training/recompute/method", modules.items.empty()
                                          ? s.draw.word({"block", "every", "uniform"})
                                          : s.draw.word({"block", "every"}));
  s.set("/training/recompute/layers", s.draw.chance(70) ? 1 : 2);
}

void draw_recompute(Sketch& s) {
  if (s.kind == Kind::recommender || s.draw.chance(45)) return;
  if (s.stack() && s.draw.chance(40)) return draw_modules(s);
  const char* form = s.draw.word({"none", "full", "full", "selective"});
  if (!s.stack() && form == std::string("selective")) form = "full";
  if (s.stack() && s.execution != "fused" && s.draw.chance(40)) form = "selective_op";
  s.set("/training/recompute", form);
  if (s.stack() && form == std::string("full") && s.draw.chance(30))
    s.set("/training/recompute_stops_early", true);
  if (form == std::string("none")) return;
  if (s.pipeline > 1 && s.draw.chance(30)) s.set("/training/recompute_ahead", true);
  if (s.strategy != "nn_data_parallel" && s.draw.chance(30))
    s.set("/training/recompute_micro_batches", s.draw.word({"except_last", "except_last", "all"}));
}

// Adapters of decoders, or some parts of them.
void draw_finetune(Sketch& s) {
  if (s.autocast || s.hybrid) return;
  Draw& draw = s.draw;
  if (s.kind != Kind::decoder || (s.compute_fp8 && draw.chance(50)) || draw.chance(60)) return;
  const bool plain = !s.experts && !s.latent;
  if (draw.chance(30) || (s.experts && s.latent)) {
    s.set("/training/finetune/kind", "frozen");
    Value trains = Value::array();
    trains.append(Value::of(draw.word({"attention", "mlp", "norms"})));
    if (draw.chance(30)) trains.append(Value::of("embedding")), trains.append(Value::of("head"));
    s.set("/training/finetune/trains", trains);
  } else {
    const bool narrow =
        plain && s.narrow && !s.compute_fp8 && s.strategy != "nn_data_parallel" && draw.chance(40);
    s.set("/training/finetune/kind", narrow && draw.chance(70) ? "qlora" : "lora");
    if (narrow) s.set("/training/finetune/base", "nf4");
    if (narrow && draw.chance(30)) s.set("/training/finetune/double_quantisation", draw.chance(50));
    if (narrow && draw.chance(30))
      s.set("/training/finetune/unquantised", draw.word({"stored", "fp32"}));
    s.set("/training/finetune/rank", s.tensor * draw.between(1, 4));
    if (draw.chance(20)) s.set("/training/finetune/alpha", 16);
    Value targets = Value::array();
    if (s.latent)
      targets.append(Value::of(draw.word({"up_proj", "down_proj", "mlp"})));
    else
      targets.append(Value::of(draw.word({"q_proj", "v_proj", "linear_qkv", "attention"})));
    if (plain && draw.chance(40)) targets.append(Value::of(draw.word({"down_proj", "linear_fc1"})));
    if (plain && draw.chance(20)) {
      targets = Value::array();
      targets.append(Value::of("all-linear"));
    }
    s.set("/training/finetune/targets", targets);
    if (draw.chance(30)) s.set("/training/finetune/dropout", draw.pick({0.0, 0.05}));
    const bool casts = s.execution == "eager" && s.narrow && !s.compute_fp8 && draw.chance(70);
    if (casts) s.set("/training/finetune/autocast", draw.chance(80));
    if (casts || draw.chance(20))
      s.set("/training/finetune/dtype", casts ? "fp32" : draw.word({"fp32", "bf16"}));
    if (draw.chance(20)) {
      Value trains = Value::array();
      trains.append(Value::of("norms"));
      s.set("/training/finetune/trains", trains);
    }
  }
  if (draw.chance(20)) s.set("/training/finetune/last_layers", 1);
}

// Steps one after another, which stages of one part and strategies that wait for all have.
void draw_input(Sketch& s) {
  const std::string_view schedule = s.schedule == nullptr ? "custom" : s.schedule->name;
  const bool flushes = s.pipeline == 1 || schedule == "1f1b" || schedule == "gpipe";
  if (!s.has_host || !flushes || s.chunks > 1 || s.strategy == "parameter_server" ||
      s.strategy == "nn_data_parallel")
    return;
  if (s.world() > 64 || s.microbatches > 16 || !s.draw.chance(15)) return;
  if (json::find(s.plan.scenario, "/parallelism/pipeline/branches") != nullptr) return;
  const Value* split = json::find(s.plan.scenario, "/parallelism/data_parallel/batch_split");
  if (split != nullptr && !(split->is(json::Kind::string) && split->text == "equal")) return;
  const auto set = [&](const char* key, const auto& value) {
    s.set(std::string("/training/input_pipeline/") + key, value);
  };
  set("workers", s.draw.pick({1, 2, 3, 4}));
  set("sample_cpu_time", s.draw.word({"0us", "20us", "5ms"}));
  set("prepared_sample", s.draw.word({"1KB", "602112B"}));
  if (s.draw.chance(50)) set("prefetch_batches", s.draw.pick({1, 2, 3}));
  if (s.draw.chance(30)) set("sample_gpu_time", "30us");
  if (s.draw.chance(30)) set("copies", s.draw.word({"ahead", "in_turn"}));
  if (!s.draw.chance(50)) return;
  set("stored_sample", "110KB");
  set("storage_bandwidth", s.draw.word({"100MB/s", "3GB/s"}));
  if (s.draw.chance(50)) set("storage_of", s.draw.word({"server", "cluster"}));
  if (s.draw.chance(50)) set("cached_share", s.draw.chance(50) ? 0.5 : 1.0);
}

void draw_offload(Sketch& s) {
  Draw& draw = s.draw;
  if (!s.offloads) return;
  const bool gathers = s.strategy == "zero3" || s.strategy == "fsdp" || s.strategy == "hsdp";
  const bool units = s.strategy == "fsdp" || s.strategy == "hsdp";
  bool optimizer = s.strategy != "local_sgd" && s.updates && draw.chance(60);
  const bool parameters = gathers && optimizer && !s.experts && (units || draw.chance(50));
  if (units && !parameters) optimizer = false;
  const bool activations = !optimizer || draw.chance(40);
  if (optimizer)
    s.set("/training/offload/optimizer", units ? "cpu" : draw.word({"cpu", "cpu", "nvme"}));
  if (parameters) s.set("/training/offload/parameters", units ? "cpu" : draw.word({"cpu", "nvme"}));
  if (optimizer && draw.chance(30)) s.set("/training/offload/tile_parameters", 1 << 20);
  const bool halves =
      s.overlap_passes || (s.pipeline > 1 && s.schedule != nullptr &&
                           (s.schedule->name[0] == 'z' || s.schedule->name[0] == 'v' ||
                            s.schedule->name.starts_with("dualpipe")));
  if (!activations || halves) return;
  s.set("/training/offload/activations", "cpu");
  if (draw.chance(40)) s.set("/training/offload/fraction", draw.pick({0.5, 0.25, 1.0}));
  if (draw.chance(40)) s.set("/training/offload/prefetch_layers", draw.between(0, 1));
}

void draw_allowance(Sketch& s) {
  Draw& draw = s.draw;
  if (draw.chance(10)) s.set("/training/memory/context", draw.word({"0B", "300MiB"}));
  if (draw.chance(10)) s.set("/training/memory/blas_workspace", draw.word({"0B", "64MiB"}));
  if (draw.chance(10)) s.set("/training/memory/fragmentation", draw.pick({0.0, 0.1}));
  if (draw.chance(5)) {
    s.set("/training/memory/fragmentation", draw.pick({0.1, 0.3}));
    s.set("/training/memory/least_fragmentation", draw.pick({0.0, 0.02, 0.1}));
  }
  if (draw.chance(10)) s.set("/training/memory/kept_outputs", draw.between(0, 3));
  if (draw.chance(10)) s.set("/training/memory/launches_ahead", draw.between(0, 400));
  if (draw.chance(5)) {
    s.set("/training/memory/launches_ahead", draw.between(1, 400));
    s.set("/training/memory/late_share", draw.pick({0.0, 0.3, 1.0}));
  }
  if (draw.chance(10)) s.set("/training/memory/nccl_buffers", draw.chance(50));
}

void draw_length(Sketch& s) {
  Draw& draw = s.draw;
  if (!draw.chance(40)) return;
  if (s.tokens() && draw.chance(50)) {
    s.set("/training/tokens", 1e9);
  } else if (draw.chance(50)) {
    s.set("/training/samples", 1000);
  } else {
    s.set("/training/epochs", draw.pick({0.5, 3.0}));
    s.set("/training/dataset_size", 100000);
  }
  if (draw.chance(50)) s.set("/cost/gpu_hour", 2.5);
}

// Rented GPUs beside owned ones, whether or not the length of the training is known.
void draw_ownership(Sketch& s) {
  Draw& draw = s.draw;
  if (!s.has_power || s.mixed || !draw.chance(15)) return;
  if (json::find(s.plan.scenario, "/cost/gpu_hour") == nullptr) s.set("/cost/server_hour", 16);
  s.set("/cost/own/server", draw.pick({30000.0, 300000.0}));
  s.set("/cost/own/years", draw.between(2, 6));
  s.set("/cost/own/utilisation", draw.pick({0.05, 0.6, 1.0}));
  s.set("/cost/own/kilowatt_hour", draw.pick({0.0, 0.12}));
  if (draw.chance(50)) s.set("/cost/own/pue", 1.2);
  if (draw.chance(50)) s.set("/cost/own/host_power", "2kW");
  if (draw.chance(50)) s.set("/cost/own/yearly", 20000);
}

// Of layers, beside those of `execution`.
void draw_kernels(Sketch& s) {
  Draw& draw = s.draw;
  if (s.execution == "eager" && s.kind == Kind::decoder) {
    for (const char* key : {"/training/norm", "/training/activation", "/training/dropout"})
      if (draw.chance(20)) s.set(key, draw.word({"kernel", "operators"}));
    const json::Value* norm = json::find(s.plan.scenario, "/training/norm");
    const json::Value* kind = json::find(s.plan.scenario, "/model/norm");
    if (norm != nullptr && norm->text == "operators" && kind != nullptr && kind->text == "rms_norm")
      if (draw.chance(50)) s.set("/training/norm_scales", draw.word({"copy", "input"}));
    if (draw.chance(20)) s.set("/training/bias", draw.word({"product", "kernel"}));
    if (draw.chance(10)) s.set("/training/broadcasts", draw.word({"one_by_one", "vectors"}));
  }
  const json::Value* positional = json::find(s.plan.scenario, "/model/positional");
  if (positional != nullptr && positional->text == "rope" && draw.chance(40))
    s.set("/training/rotary", s.execution == "compiled" || (s.latent && s.execution == "fused")
                                  ? "kernel"
                                  : draw.word({"operators", "kernel"}));
  if (s.execution != "fused" && s.stack() && draw.chance(20))
    s.set("/training/projections", draw.word({"joint", "separate"}));
  if (s.execution != "fused" && s.kind == Kind::decoder && draw.chance(20))
    s.set("/training/key_value_heads", draw.word({"grouped", "repeated"}));
  if (s.stack() && s.execution == "fused" && draw.chance(10))
    s.set("/training/norm_inputs", draw.word({"stored", "fp32"}));
  const json::Value* activation = json::find(s.plan.scenario, "/model/ffn");
  if (activation != nullptr && activation->text == "swiglu" && draw.chance(40))
    s.set("/training/gate_projection", draw.word({"joint", "separate"}));
  if (activation != nullptr && activation->text == "swiglu" && s.execution == "fused" &&
      draw.chance(20))
    s.set("/training/precision/kept_fp8_gates", true);
  if (s.kind == Kind::layers && s.preset != "swin-t" && draw.chance(25))
    s.set("/training/image_layout", draw.word({"nhwc", "nchw"}));
  else if (s.kind == Kind::layers && s.preset != "swin-t" && s.narrow && draw.chance(25))
    s.set("/training/batch_norm", draw.word({"kernel", "fused"}));
  if (s.experts && draw.chance(30))
    s.set("/training/expert_products", draw.word({"joint", "separate"}));
  if (!s.experts || s.execution == "eager") return;  // which has operators of its own
  if (draw.chance(30)) s.set("/training/expert_weights", draw.word({"combination", "activation"}));
  const json::Value* biased = json::find(s.plan.scenario, "/model/moe/biases");
  if (biased != nullptr && biased->boolean && draw.chance(50))
    s.set("/training/expert_biases", draw.word({"product", "operators"}));
  const json::Value* clamped = json::find(s.plan.scenario, "/model/moe/clamped");
  if (clamped != nullptr && clamped->boolean && draw.chance(50))
    s.set("/training/expert_clamps", draw.word({"kernel", "operators"}));
}

}  // namespace

void draw_training(Sketch& s) {
  Draw& draw = s.draw;
  s.set("/training/global_batch", s.micro_batch * s.data * s.microbatches);
  s.set("/training/micro_batch", s.micro_batch);
  if (s.tokens()) s.set("/training/sequence_length", s.sequence_length);
  if (s.kind == Kind::encoder_decoder)
    s.set("/training/decoder_sequence_length",
          draw.chance(50) ? s.sequence_length : 2 * s.sequence_length);
  if (s.kind == Kind::decoder && draw.chance(15))
    s.set("/training/document_length", draw.between(1, s.sequence_length));
  if (s.kind == Kind::encoder && draw.chance(30))
    s.set("/training/predictions_per_sequence", draw.between(1, s.sequence_length));
  draw_precision(s);
  draw_finetune(s);
  s.forward_only = !s.offloads && s.strategy != "local_sgd" && s.strategy != "parameter_server" &&
                   draw.chance(8);
  if (s.forward_only)
    s.set("/training/forward_only", true);
  else
    draw_recompute(s);
  // Those that every GPU runs.
  if (s.fused_attention && draw.chance(30))
    s.set("/training/fused_attention", draw.word({"fa1", "triton"}));
  else if (s.fused_attention)
    s.set("/training/fused_attention", true);
  else if (s.stack() && draw.chance(10))
    s.set("/training/fused_attention", "sdpa_math");
  else if (s.stack() && draw.chance(20)) {
    s.set("/training/fused_attention", "unfused");
    s.set("/training/unaligned_heads", draw.word({"tensor_cores", "cuda_cores"}));
    if (s.autocast)
      s.set("/training/softmax", "fp32");
    else if (s.execution == "compiled")
      s.set("/training/softmax", "kernel");
    else
      s.set("/training/softmax", draw.word({"kernel", "operators", "fp32"}));
  }
  if (s.execution != "fused" || draw.chance(10)) s.set("/training/execution", s.execution);
  if (s.execution != "fused" && s.tokens() && draw.chance(30))
    s.set("/training/loss", draw.word({"eager", "compiled"}));
  if (s.execution != "fused" && s.kind == Kind::decoder && draw.chance(15))
    s.set("/training/loss", "parallel");
  if (s.execution == "fused" && s.kind == Kind::decoder && draw.chance(20))
    s.set("/training/loss", draw.word({"parallel", "compiled", "in_place"}));
  draw_kernels(s);
  if (s.strategy != "nn_data_parallel" && draw.chance(30))
    s.set("/training/gradient_accumulation",
          s.stack() ? draw.word({"product", "kernel", "after_pass", "converted", "autograd"})
                    : draw.word({"kernel", "after_pass", "converted", "autograd"}));
  if (s.stack() && s.execution == "fused" && !s.autocast && s.strategy != "nn_data_parallel" &&
      draw.chance(20)) {
    s.set("/training/gradient_accumulation", "product");
    s.set("/training/gradient_placeholders", draw.word({"none", "dropped", "kept"}));
  }
  if (draw.chance(20)) s.set("/training/launch_time", draw.word({"0us", "5us", "40us"}));
  if (draw.chance(10)) {
    s.set("/training/collective_call/time", draw.word({"0us", "93us"}));
    s.set("/training/collective_call/per_rank", draw.word({"1us", "290us"}));
  }
  if (!s.forward_only && draw.chance(10))
    s.set("/training/optimizer/gradient_passes", draw.between(0, 5));
  if (s.kind != Kind::recommender && s.strategy != "parameter_server" && s.updates &&
      !s.forward_only && draw.chance(30))
    s.set("/training/gradient_clipping", draw.chance(70));
  if (s.kind == Kind::recommender && draw.chance(40))
    s.set("/training/embedding_optimizer", draw.word({"sgd", "row_wise_adagrad", "adam"}));
  draw_offload(s);
  draw_input(s);
  draw_allowance(s);
  draw_length(s);
  draw_ownership(s);
}

}  // namespace trainyard::fuzz
