// What is trained and how: the tables of /model, /training, /parallelism and the rest. The
// machine's are in machine_sections.cpp.
#include "sim/scenario/sections.h"

#include "sim/json/schema.h"
#include "sim/plan/data_parallel.h"
#include "sim/plan/schedule.h"

namespace trainyard {
namespace {

using json::anything;
using json::at_least;
using json::between;
using json::Choice;
using json::optional;
using json::positive;
using json::required;

// Upper ends that keep every product of sizes within 64 bits; no network comes near.
constexpr double kMostLayers = 1e5;
constexpr double kMostWidth = 1e7;
constexpr double kMostTokens = 1e8;
constexpr double kMostBatch = 1e9;

constexpr std::array<Choice<FeedForward>, 4> kFeedForwards = {{{"gelu", FeedForward::gelu},
                                                               {"relu", FeedForward::relu},
                                                               {"swiglu", FeedForward::swiglu},
                                                               {"geglu", FeedForward::geglu}}};
constexpr std::array<Choice<Positional>, 3> kPositionals = {
    {{"learned", Positional::learned}, {"rope", Positional::rope}, {"none", Positional::none}}};
constexpr std::array<Choice<Norm>, 2> kNorms = {
    {{"layer_norm", Norm::layer_norm}, {"rms_norm", Norm::rms_norm}}};
constexpr std::array<Choice<Dtype>, 5> kDtypes = {{{"fp32", Dtype::fp32},
                                                   {"tf32", Dtype::tf32},
                                                   {"bf16", Dtype::bf16},
                                                   {"fp16", Dtype::fp16},
                                                   {"fp8", Dtype::fp8}}};
constexpr std::array<Choice<Dtype>, 3> kGradientDtypes = {
    {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}}};
constexpr std::array<Choice<bool>, 2> kMasterWeights = {{{"fp32", true}, {"none", false}}};
constexpr std::array<Choice<Optimizer>, 3> kOptimizers = {
    {{"adam", Optimizer::adam}, {"adamw", Optimizer::adam}, {"sgd", Optimizer::sgd}}};
constexpr std::array<Choice<Recompute>, 3> kRecomputes = {
    {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}}};
constexpr std::array<Choice<Fusion>, 3> kExecutions = {
    {{"fused", Fusion::by_hand}, {"eager", Fusion::eager}, {"compiled", Fusion::compiled}}};
constexpr std::array<Choice<TensorOverlap>, 2> kTensorOverlaps = {
    {{"none", TensorOverlap::none}, {"weight_gradient", TensorOverlap::weight_gradient}}};
constexpr std::array<Choice<Fidelity>, 2> kFidelities = {
    {{"closed_form", Fidelity::closed_form}, {"flow", Fidelity::flow}}};

constexpr std::array<Choice<Placement>, 3> kPlacements = {
    {{"looped", Placement::looped},
     {"v", Placement::v_shaped},
     {"bidirectional", Placement::bidirectional}}};

using Order = std::array<Axis, kAxes>;
constexpr Axis kT = Axis::tensor, kC = Axis::context, kD = Axis::data, kP = Axis::pipeline;
// Without cp it follows tp.
constexpr std::array<Choice<Order>, 30> kRankOrders = {
    {{"tp-dp-pp", {kT, kC, kD, kP}},    {"tp-pp-dp", {kT, kC, kP, kD}},
     {"dp-tp-pp", {kD, kT, kC, kP}},    {"dp-pp-tp", {kD, kP, kT, kC}},
     {"pp-tp-dp", {kP, kT, kC, kD}},    {"pp-dp-tp", {kP, kD, kT, kC}},
     {"tp-cp-dp-pp", {kT, kC, kD, kP}}, {"tp-cp-pp-dp", {kT, kC, kP, kD}},
     {"tp-dp-cp-pp", {kT, kD, kC, kP}}, {"tp-dp-pp-cp", {kT, kD, kP, kC}},
     {"tp-pp-cp-dp", {kT, kP, kC, kD}}, {"tp-pp-dp-cp", {kT, kP, kD, kC}},
     {"cp-tp-dp-pp", {kC, kT, kD, kP}}, {"cp-tp-pp-dp", {kC, kT, kP, kD}},
     {"cp-dp-tp-pp", {kC, kD, kT, kP}}, {"cp-dp-pp-tp", {kC, kD, kP, kT}},
     {"cp-pp-tp-dp", {kC, kP, kT, kD}}, {"cp-pp-dp-tp", {kC, kP, kD, kT}},
     {"dp-tp-cp-pp", {kD, kT, kC, kP}}, {"dp-tp-pp-cp", {kD, kT, kP, kC}},
     {"dp-cp-tp-pp", {kD, kC, kT, kP}}, {"dp-cp-pp-tp", {kD, kC, kP, kT}},
     {"dp-pp-tp-cp", {kD, kP, kT, kC}}, {"dp-pp-cp-tp", {kD, kP, kC, kT}},
     {"pp-tp-cp-dp", {kP, kT, kC, kD}}, {"pp-tp-dp-cp", {kP, kT, kD, kC}},
     {"pp-cp-tp-dp", {kP, kC, kT, kD}}, {"pp-cp-dp-tp", {kP, kC, kD, kT}},
     {"pp-dp-tp-cp", {kP, kD, kT, kC}}, {"pp-dp-cp-tp", {kP, kD, kC, kT}}}};
constexpr std::array<Choice<ContextMethod>, 3> kContextMethods = {
    {{"ring", ContextMethod::ring},
     {"all_gather", ContextMethod::all_gather},
     {"ulysses", ContextMethod::ulysses}}};

// A choice that may be absent.
template <class E, class List>
void maybe_choice(json::Fields& f, std::string_view key, std::optional<E>& value, const List& list,
                  E otherwise, std::string_view about) {
  E given = value.value_or(otherwise);
  if (f.choice(key, given, list, optional, about)) value = given;
}

}  // namespace

void visit_fields(json::Fields& f, ImageInput& s) {
  f.list("image_size", s.image_size, required, between(1, 65536), "Channels, height, width.");
  if (!s.image_size.empty() && s.image_size.size() != 3)
    f.problem("image_size", "expected three numbers: channels, height, width");
}

void visit_fields(json::Fields& f, ModelSection& s) {
  f.source("preset", "A file of configs/models, or a network built by code (resnet50, vgg16).");
  f.source("hf_config", "Path of a Hugging Face config.json, relative to this file.");
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
  const bool has_input =
      f.section("input", s.input, optional, "What a convolutional network sees.");
  if (s.built) return;
  if (has_input) f.problem("input", "only networks of images have an input size");
  Transformer& t = s.transformer;
  std::string kind = "transformer";
  f.not_yet({"layers"});
  f.name("kind", kind, std::array<std::string_view, 1>{"transformer"}, optional,
         "Family of the network.");
  f.field("layers", t.layers, required, between(1, kMostLayers), "Transformer layers.");
  f.field("hidden", t.hidden, required, between(1, kMostWidth), "Width of the residual stream.");
  f.field("heads", t.heads, required, between(1, kMostWidth), "Attention heads.");
  f.field("kv_heads", s.kv_heads, between(1, kMostWidth),
          "Heads of keys and values; fewer than heads is grouped-query attention. Default: heads.");
  f.field("head_dim", s.head_size, between(1, kMostWidth),
          "Width of a head. Default: hidden / heads.");
  f.field("ffn_hidden", s.ffn_hidden, between(1, kMostWidth),
          "Width of the feed-forward layer. Default: 4 x hidden.");
  f.choice("ffn", t.feed_forward, kFeedForwards, optional, "Activation of the feed-forward layer.");
  f.field("vocab", t.vocabulary, required, between(1, 1e9), "Entries of the vocabulary.");
  f.not_yet({"alibi"});
  f.choice("positional", t.positional, kPositionals, optional, "How positions enter.");
  f.field("max_positions", s.max_positions, between(1, kMostTokens),
          "Rows of a learned position table. Default: the sequence length.");
  f.choice("norm", t.norm, kNorms, optional, "Normalisation before each block.");
  f.field("biases", t.biases, optional, "Linear layers have biases.");
  f.field("dropout", t.dropout, optional, "Dropout after attention and feed-forward.");
  f.field("tied_embeddings", t.tied_embeddings, optional,
          "The output layer shares the embedding's weights.");
  MoeSection moe = s.moe.value_or(MoeSection{});
  if (f.section("moe", moe, optional, "Experts in place of the feed-forward layer.")) s.moe = moe;
  f.section("latent_attention", t.latent, optional,
            "Queries, keys and values expanded from compressed states.");
  f.unsupported("chakra_et", "a network from Chakra traces; describe its layers");
}

void visit_fields(json::Fields& f, MoeSection& s) {
  f.field("experts", s.experts, required, between(1, 1 << 16), "Routed experts of a layer.");
  f.field("top_k", s.top_k, required, between(1, 1 << 16), "Experts that each token visits.");
  f.field("expert_ffn_hidden", s.expert_ffn_hidden, between(1, kMostWidth),
          "Width of one routed expert. Default: ffn_hidden.");
  f.field("shared_experts", s.shared_experts, optional, between(0, 1 << 16),
          "Experts that every token visits.");
  f.field("shared_ffn_hidden", s.shared_ffn_hidden, between(1, kMostWidth),
          "Width of the shared experts together. Default: that of as many routed ones.");
  f.field("first_dense", s.first_dense, optional, between(0, kMostLayers),
          "Dense layers before the first one with experts.");
  f.field("every", s.every, optional, between(1, kMostLayers),
          "Of the layers that follow, each n-th has experts.");
}

void visit_fields(json::Fields& f, LatentAttention& s) {
  f.field("kv_rank", s.key_value_rank, required, between(1, kMostWidth),
          "Width of the compressed keys and values.");
  f.field("q_rank", s.query_rank, optional, between(0, kMostWidth),
          "Width of the compressed queries; 0: they are projected from the hidden states.");
  f.field("nope_head_dim", s.nope_size, required, between(1, kMostWidth),
          "Part of a query's and key's head without positions.");
  f.field("rope_head_dim", s.rope_size, required, between(1, kMostWidth),
          "Part of a head that is rotated; one key of it serves all heads.");
  f.field("v_head_dim", s.value_size, required, between(1, kMostWidth), "Head of the values.");
}

void visit_fields(json::Fields& f, PrecisionSection& s) {
  f.choice("compute", s.compute, kDtypes, required, "Type of matrix multiplications.");
  maybe_choice(f, "gradients", s.gradients, kGradientDtypes, Dtype::bf16,
               "Type in which gradients are kept and reduced. Default: that of the weights.");
  maybe_choice(f, "master_weights", s.master_weights, kMasterWeights, true,
               "The optimizer's own copy of 16-bit weights.");
}

void visit_fields(json::Fields& f, OptimizerSection& s) {
  f.not_yet({"lamb", "lion"});
  f.choice("type", s.type, kOptimizers, required, "How parameters are updated.");
  f.field("momentum", s.momentum, optional, "SGD keeps a momentum per parameter.");
  f.unsupported("offload", "offloading the optimizer to the host", {"false"});
}

void visit_fields(json::Fields& f, TrainingSection& s) {
  f.field("global_batch", s.global_batch, required, between(1, kMostBatch),
          "Sequences or images per optimizer step, over all GPUs.");
  f.field("micro_batch", s.micro_batch, required, between(1, kMostBatch),
          "Sequences or images per data-parallel replica and micro-batch.");
  f.field("sequence_length", s.sequence_length, between(1, kMostTokens),
          "Tokens of a sequence. Transformers need it.");
  f.section("precision", s.precision, required, "Number formats.");
  f.section("optimizer", s.optimizer, required, "How parameters are updated.");
  f.choice("recompute", s.recompute, kRecomputes, optional,
           "Activations computed again in the backward pass.");
  f.field("fused_attention", s.fused_attention, optional, "Flash attention: no scores in memory.");
  f.choice("execution", s.execution, kExecutions, optional,
           "Element-wise kernels: fused by hand as in Megatron-LM, PyTorch's eager operators, or "
           "those of torch.compile.");
  f.field("launch_time", s.launch_time, json::not_negative,
          "Host time per kernel; 0us: a CUDA graph. Default: the profile's.");
  f.field("gradient_clipping", s.gradient_clipping, optional,
          "Gradients are scaled by the norm of all of them before the optimizer step.");
  f.field("tokens", s.tokens, positive, "Of the whole training, to say how long it takes.");
  f.unsupported("dataset", "a data set; give /training/tokens");
  f.unsupported("input_pipeline", "an input pipeline; input is taken to be ready in time");
  f.unsupported("checkpoint", "writing checkpoints; a step without one is simulated");
}

void visit_fields(json::Fields& f, PipelineSection& s) {
  std::vector<std::string_view> names;
  for (const ScheduleEntry& entry : schedules())
    names.push_back(entry.name);
  names.push_back(kCustomSchedule);
  f.name("schedule", s.schedule, names, optional, "Order of forward and backward passes.");
  f.list("slots", s.custom.slots, optional, anything,
         "Of schedule custom: for each stage its passes in order, as \"F0 F1 B0 B1\".");
  f.choice("placement", s.custom.placement, kPlacements, optional,
           "Of schedule custom: where chunks are, or copies of the network.");
  f.field("chunks_per_stage", s.chunks, between(1, 1024),
          "Virtual stages per stage. Default: as many as the schedule has by itself.");
  constexpr std::array<std::string_view, 2> kSplits = {"uniform", "balanced_with_embeddings"};
  f.numbers_or_name({"layer_split", optional, at_least(1),
                     "Layers of each virtual stage, chunk by chunk; or how to find them."},
                    kSplits, s.layer_split, s.layers_per_chunk);
  f.field("overlap_p2p", s.overlap_p2p, optional,
          "Computing goes on while activations are sent; false: as blocking calls do.");
}

void visit_fields(json::Fields& f, TensorParallelSection& s) {
  f.not_yet({"ring", "pipelined"});
  f.choice("overlap", s.overlap, kTensorOverlaps, optional,
           "When a collective of the backward pass is waited for.");
}

void visit_fields(json::Fields& f, ContextParallelSection& s) {
  f.choice(
      "method", s.method, kContextMethods, optional,
      "How attention sees tokens of other ranks: ring (hop by hop under attention), all_gather "
      "(keys and values first), ulysses (all-to-all over heads).");
}

void visit_fields(json::Fields& f, ExpertParallelSection& s) {
  f.field(
      "capacity_factor", s.capacity_factor, json::Bounds{0, 1024, true},
      "Rows an expert takes, in even shares; the rest are dropped. Default: no row is dropped.");
  f.list("load", s.load, optional, json::Bounds{0, 1e6, false},
         "Rows of each expert against the others, one number per expert.");
  f.field("imbalance", s.imbalance, optional, between(0, 0.57),
          "Standard deviation of the experts' load against its mean; drawn evenly by "
          "simulation.seed.");
}

void visit_fields(json::Fields& f, DataParallelSection& s) {
  std::vector<std::string_view> names;
  for (const StrategyEntry& entry : data_parallel_strategies())
    names.push_back(entry.name);
  f.not_yet({"parameter_server"});
  f.name("kind", s.kind, names, optional, "What replicas divide and how they exchange gradients.");
  f.field("bucket_size", s.bucket_size, optional, positive, "Gradients reduced together.");
  f.field("first_bucket_size", s.first_bucket_size, optional, positive,
          "The first bucket, small so that communication starts early.");
  f.field("overlap_backward", s.overlap_backward, optional,
          "Buckets are reduced while the backward pass goes on.");
  f.field("reduce_every_microbatch", s.reduce_every_microbatch, anything,
          "Gradients are reduced after every micro-batch, not only the last. Default: true for "
          "zero2, zero3, fsdp and hsdp.");
  f.field("shard_size", s.shard_size, between(2, 1 << 20),
          "hsdp: neighbouring ranks that share one copy.");
  f.field("prefetch_layers", s.prefetch_layers, between(0, kMostPrefetchLayers),
          "zero3, fsdp, hsdp: layers gathered ahead of the one that computes. Default: 1.");
  f.field("limit_all_gathers", s.limit_all_gathers, anything,
          "zero3, fsdp, hsdp: false lets gathers run ahead of the computation without a limit.");
  f.field("reshard_after_forward", s.reshard_after_forward, anything,
          "fsdp, hsdp: false keeps layers gathered from forward to backward.");
  maybe_choice(f, "reduce_dtype", s.reduce_dtype, kGradientDtypes, Dtype::fp32,
               "fsdp, hsdp: type in which gradients are reduced. Default: precision/gradients.");
  f.field("overlap_param_gather", s.overlap_param_gather, anything,
          "zero1, zero2, distributed_optimizer: updated parameters are gathered under the next "
          "forward pass. Default: true for distributed_optimizer.");
  f.field("all_reduce_gradients", s.all_reduce_gradients, anything,
          "zero1: whole gradients are all-reduced, as DeepSpeed once did.");
  f.field("steps_between", s.steps_between, between(1, 1e6),
          "local_sgd: steps from one meeting of the replicas to the next; a simulated step carries "
          "that part of it. Default: 100.");
  f.unsupported("parameter_server", "a parameter server; kind allreduce is available");
}

void visit_fields(json::Fields& f, ParallelismSection& s) {
  f.field("tp", s.tp, optional, between(1, 1 << 20), "Tensor-parallel degree.");
  f.field("pp", s.pp, optional, between(1, 1 << 20), "Pipeline-parallel degree.");
  f.field("dp", s.dp, between(1, 1 << 20),
          "Data-parallel degree. Default: the GPUs that tp, cp and pp leave.");
  f.field("cp", s.cp, optional, between(1, 1 << 20),
          "Context-parallel degree: parts into which every sequence is divided.");
  f.field(
      "ep", s.ep, optional, between(1, 1 << 20),
      "Expert-parallel degree: ranks, of those of tp, cp and dp, that share a layer's experts.");
  f.field("etp", s.etp, between(1, 1 << 20),
          "Expert-tensor-parallel degree: ranks that divide each expert. Default: tp.");
  f.choice("rank_order", s.rank_order, kRankOrders, optional,
           "Axes of a rank's place, fastest first: neighbours differ in the first.");
  f.field("sequence_parallel", s.sequence_parallel, optional,
          "Norms and dropout are split along the sequence in the tensor-parallel group.");
  f.section("pipeline", s.pipeline, optional, "Pipeline parallelism.");
  f.section("tensor_parallel", s.tensor_parallel, optional, "Tensor parallelism.");
  f.section("context_parallel", s.context_parallel, optional, "Context parallelism.");
  f.section("expert_parallel", s.expert_parallel, optional, "Expert parallelism.");
  f.section("data_parallel", s.data_parallel, optional, "Data parallelism.");
}

void visit_fields(json::Fields& f, CollectiveChoice& s) {
  constexpr std::array<std::string_view, 1> kAuto = {"auto"};
  f.not_yet({"ring", "tree", "double_binary_tree", "halving_doubling", "hierarchical", "nvls",
             "collnet", "direct"});
  f.name("algorithm", s.algorithm, kAuto, optional,
         "Algorithm; auto: the profile's or the ring's law.");
  f.not_yet({"simple", "ll", "ll128"});
  f.name("protocol", s.protocol, kAuto, optional, "NCCL protocol.");
  f.unsupported("channels", "choosing channels; the profile says how many there are");
}

void visit_fields(json::Fields& f, CollectivesSection& s) {
  f.not_yet({"ideal", "custom"});
  f.name("library", s.library, std::array<std::string_view, 1>{"nccl"}, optional, "Library.");
  f.section("allreduce", s.all_reduce, optional, "All-reduce.");
  f.section("allgather", s.all_gather, optional, "All-gather.");
  f.section("reduce_scatter", s.reduce_scatter, optional, "Reduce-scatter.");
  f.section("p2p", s.p2p, optional, "Sends and receives.");
  f.unsupported("broadcast", "a choice for broadcasts; no strategy uses one");
  f.unsupported("alltoall", "a choice for all-to-all; no strategy uses one");
}

void visit_fields(json::Fields& f, StragglerSelect& s) {
  f.field("rank", s.rank, at_least(0), "A rank.");
  f.field("node", s.node, at_least(0), "All ranks of a server.");
  f.unsupported("link", "a slow link; select rank or node");
  f.unsupported("fraction", "random stragglers; select rank or node");
}

void visit_fields(json::Fields& f, StragglerSection& s) {
  f.section("select", s.select, required, "Who is slow: exactly one of rank and node.");
  f.field("compute_slowdown", s.compute_slowdown, required, json::Bounds{0, 1e6, true},
          "Kernels take this many times as long.");
  f.field("reason", s.reason, optional, "For people.");
  f.unsupported("bandwidth_factor", "a slow link; compute_slowdown is available");
  f.unsupported("added_latency", "a slow link; compute_slowdown is available");
  f.unsupported("from", "a straggler for part of the step; it is slow from start to end");
  f.unsupported("until", "a straggler for part of the step; it is slow from start to end");
}

void visit_fields(json::Fields& f, PerturbationsSection& s) {
  f.sections("stragglers", s.stragglers, optional, "Slow ranks or servers.");
  f.unsupported("compute_jitter", "jitter; stragglers are available");
  f.unsupported("network_jitter", "jitter; stragglers are available");
  f.unsupported("failures", "simulating failures; stragglers are available");
}

void visit_fields(json::Fields& f, SimulationSection& s) {
  f.not_yet({"step", "layer", "op", "packet"});
  f.choice("fidelity", s.fidelity, kFidelities, optional,
           "closed_form: each message by its law; flow: messages share the links they meet on.");
  f.field("seed", s.seed, optional, "Of everything random.");
  f.field("exploit_symmetry", s.exploit_symmetry, optional,
          "One rank stands for all that behave alike; the result is the same.");
  f.unsupported("iterations", "more than one step; every step is alike", {"1"});
  f.unsupported("warmup_iterations", "warm-up steps; every step is alike", {"0"});
  f.unsupported("goodput_horizon", "goodput under failures");
  f.unsupported("max_events", "a limit of events");
}

void visit_fields(json::Fields& f, ReferenceSection& s) {
  f.field("label", s.label, required, "What the number is and where it stands.");
  f.field("metric", s.metric, optional,
          "As reports name it: step_time, mfu, model_tflops_per_gpu.");
  f.field("value", s.value, anything, "In the metric's unit.");
  f.name("status", s.status, std::array<std::string_view, 2>{"verified", "to_verify"}, optional,
         "Whether the number was checked against its source.");
}

void visit_fields(json::Fields& f, VariantSection& s) {
  f.field("name", s.name, required, "Short name, unique in the file.");
  f.field("label", s.label, optional, "For people.");
  f.accepted("with", "Merge patch (RFC 7396) on this scenario; null removes, arrays are replaced.");
}

void visit_fields(json::Fields& f, OutputsSection& s) {
  f.field("directory", s.directory, optional,
          "Where reports go unless the command line says otherwise.");
  for (const std::string_view key : {"report", "trace", "summary", "table", "chakra"})
    f.unsupported(key, "naming single outputs; give a directory");
}

void visit_fields(json::Fields& f, ScenarioSections& s) {
  f.accepted("$schema", "For editors.");
  f.field("version", s.version, required, between(1, 1), "Of this format: 1.");
  f.field("name", s.name, required, "Short name of the scenario.");
  f.field("label", s.label, optional, "For people; default: the name.");
  f.field("description", s.description, optional, "For people.");
  f.source("extends", "Base file or files, merged before this one (RFC 7396).");
  f.sections("references", s.references, optional, "Published numbers to compare with.");
  f.section("model", s.model, required, "What is trained.");
  f.section("cluster", s.cluster, required, "Where it runs.");
  f.section("training", s.training, required, "How it is trained.");
  f.section("parallelism", s.parallelism, optional, "How the work is divided.");
  f.section("collectives", s.collectives, optional, "How GPUs communicate.");
  f.section("perturbations", s.perturbations, optional, "What goes wrong.");
  f.section("simulation", s.simulation, optional, "How it is simulated.");
  f.field("baseline", s.baseline, optional, "The variant that others are compared with.");
  f.sections("variants", s.variants, optional, "Changes to this scenario, compared side by side.");
  f.unsupported("sweep", "a sweep; list variants");
  f.section("outputs", s.outputs, optional, "What is written.");
}

json::KeyIndex scenario_keys() {
  return json::keys_of([](json::Fields& f) {
    ScenarioSections sections;
    visit_fields(f, sections);
  });
}

}  // namespace trainyard
