// What no single field can know: degrees against GPUs, layers against stages, batches against
// replicas, formats against the chip. Bad inputs 51-75.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "models/families/network.h"
#include "sim/base/text.h"
#include "sim/json/quantity.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/custom_schedule.h"
#include "sim/schedule/schedule.h"
#include "topologies/cluster_check.h"

namespace trainyard::scenario {

using models::Dtype;
using recipe::LayerSplit;
using recipe::ParallelDegrees;
using schedule::PipelineShape;

namespace {

class Validator {
 public:
  Validator(const Scenario& scenario, const ScenarioSections& sections, Findings& findings)
      : scenario_(scenario),
        recipe_(scenario.recipe),
        plan_(scenario.plan),
        degrees_(scenario.plan.degrees),
        sections_(sections),
        findings_(findings) {}

  void run() {
    check_names();
    for (Diagnostic& diagnostic : check(scenario_.cluster))
      findings_.found.push_back(std::move(diagnostic));
    check_execution_of_network();
    check_batch();
    check_layers();
    check_schedule_of_pipeline();
    validate_tensor_parallel(scenario_, findings_);
    check_precision();
    check_plausible();
    validate_precision(scenario_, findings_);
    validate_data_parallel(scenario_, findings_);
    validate_recompute(scenario_, findings_);
    validate_offload(scenario_, findings_);
  }

 private:
  void check_names();
  void check_execution_of_network();
  void check_batch();
  void check_layers();
  void check_schedule_of_pipeline();
  void check_custom_schedule();
  void check_precision();
  void check_plausible();
  void plausible(const char* pointer, BytesPerSecond value, double least, double most);
  void plausible(const char* pointer, Duration value);

  const Scenario& scenario_;
  const recipe::TrainingRecipe& recipe_;
  const recipe::ParallelPlan& plan_;
  const ParallelDegrees& degrees_;
  const ScenarioSections& sections_;
  Findings& findings_;
  std::int64_t microbatches_ = 0;  // 0: the batch does not divide
};

constexpr std::size_t kLongestName = 256;

bool is_plain_name(const std::string& name) {
  if (name.empty()) return false;
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return name[0] != '.' && name[0] != '-' && std::all_of(name.begin(), name.end(), plain);
}

void Validator::check_names() {
  const std::string& name = sections_.name;
  if (name.empty()) findings_.error("/name", "the name is empty");
  if (name.size() > kLongestName)
    findings_.error("/name", fmt::format("the name has {} bytes, at most {} are taken", name.size(),
                                         kLongestName));
  const std::vector<VariantSection>& variants = sections_.variants;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string pointer = fmt::format("/variants/{}/name", i);
    const std::string& variant = variants[i].name;
    if (!is_plain_name(variant) || variant.size() > kLongestName)
      findings_.error(pointer, "expected a short name of letters, digits, '_', '.', '-'",
                      "write the words in \"label\"");
    for (std::size_t k = 0; k < i; ++k) {
      if (variants[k].name == variant)
        findings_.error(pointer, fmt::format("two variants are named \"{}\"", variant));
    }
  }
  const std::string& baseline = sections_.baseline;
  if (baseline.empty()) return;
  std::vector<std::string_view> known;
  for (const VariantSection& variant : variants)
    known.push_back(variant.name);
  if (std::find(known.begin(), known.end(), baseline) != known.end()) return;
  const auto near = find_nearest(baseline, known);
  findings_.error("/baseline", fmt::format("no variant is named \"{}\"", baseline),
                  near ? fmt::format("did you mean \"{}\"?", *near) : "");
}

void Validator::check_execution_of_network() {
  const models::Execution planned = plan::execution(recipe_, plan_);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kPointers = {
      {{"", "/model"},
       {"tensor_chunks", "/parallelism/tensor_parallel/chunks"},
       {"tensor", "/parallelism/tp"},
       {"context", "/parallelism/cp"},
       {"expert", "/parallelism/ep"},
       {"expert_tensor", "/parallelism/etp"},
       {"fused_attention", "/training/fused_attention"},
       {"fusion", "/training/execution"},
       {"sequence_length", "/training/sequence_length"},
       {"decoder_sequence_length", "/training/decoder_sequence_length"},
       {"predictions", "/training/predictions_per_sequence"},
       {"sequence_parallel", "/parallelism/sequence_parallel"},
       {"micro_batch", "/training/micro_batch"},
       {"recompute", "/training/recompute"}}};
  for (const models::ExecutionProblem& problem : check_execution(scenario_.network, planned)) {
    std::string_view pointer = "/model";
    for (const auto& [member, at] : kPointers) {
      if (member == problem.member) pointer = at;
    }
    findings_.error(std::string(pointer), problem.message);
  }
}

void Validator::check_batch() {
  const std::int64_t per_round = recipe_.micro_batch.size * degrees_.data;
  if (recipe_.global_batch % per_round != 0) {
    const std::int64_t below = recipe_.global_batch / per_round * per_round;
    findings_.error(
        "/training/global_batch",
        fmt::format("{} is not divisible by micro_batch {} x dp {} = {}", recipe_.global_batch,
                    recipe_.micro_batch.size, degrees_.data, per_round),
        below > 0 ? fmt::format("nearest: {}, {}", below, below + per_round)
                  : fmt::format("the least is {}", per_round));
    return;
  }
  constexpr std::int64_t kMostMicrobatches = 1 << 20;
  microbatches_ = recipe_.global_batch / per_round;
  if (microbatches_ <= kMostMicrobatches) return;
  findings_.error("/training/global_batch",
                  fmt::format("{} micro-batches per step, at most {} are simulated", microbatches_,
                              kMostMicrobatches));
  microbatches_ = 0;
}

void Validator::check_layers() {
  const std::int64_t layers = divisible_layers(scenario_.network);
  const std::int64_t parts = std::int64_t{degrees_.pipeline} * plan_.pipeline.chunks;
  const std::string chunks = plan_.pipeline.chunks == 1
                                 ? fmt::format("{} stages", degrees_.pipeline)
                                 : fmt::format("{} stages x {} chunks = {}", degrees_.pipeline,
                                               plan_.pipeline.chunks, parts);
  if (plan_.pipeline.layer_split == LayerSplit::list) {
    const std::vector<int>& list = plan_.pipeline.layers_per_chunk;
    const std::int64_t sum = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    if (static_cast<std::int64_t>(list.size()) != parts)
      findings_.error("/parallelism/pipeline/layer_split",
                      fmt::format("{} numbers for {}", list.size(), chunks));
    else if (sum != layers)
      findings_.error("/parallelism/pipeline/layer_split",
                      fmt::format("the numbers sum to {}, the network has {} layers", sum, layers));
    return;
  }
  // A balanced split may leave the embedding or the logits alone on a chunk.
  const std::int64_t places =
      plan_.pipeline.layer_split == LayerSplit::balanced ? chain_length(scenario_.network) : layers;
  if (parts > places) {
    findings_.error("/parallelism/pp", fmt::format("{} layers are too few for {}", layers, chunks));
  } else if (plan_.pipeline.layer_split == LayerSplit::uniform && layers % parts != 0) {
    findings_.error("/parallelism/pp",
                    fmt::format("{} layers are not divisible by {}", layers, chunks),
                    "state /parallelism/pipeline/layer_split: a list of layers per stage, or "
                    "\"balanced_with_embeddings\"");
  }
}

constexpr std::string_view kGrouped = "interleaved_1f1b";

// The smallest group that takes the micro-batches; empty if none does.
std::string possible_group(PipelineShape shape) {
  for (shape.group = shape.stages; shape.group <= shape.microbatches; ++shape.group)
    if (!interleaved_unsupported(shape))
      return fmt::format("set parallelism.pipeline.group_size to {}", shape.group);
  return {};
}

void Validator::check_schedule_of_pipeline() {
  if (plan_.pipeline.chunks > 1 && degrees_.pipeline == 1) {
    findings_.error(
        "/parallelism/pipeline/chunks_per_stage",
        fmt::format("{} chunks per stage need a pipeline, pp is 1", plan_.pipeline.chunks));
    return;
  }
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan_.pipeline.schedule);
  if (plan_.pipeline.group_size > 0 && (schedule == nullptr || schedule->name != kGrouped)) {
    findings_.error(
        "/parallelism/pipeline/group_size",
        fmt::format("schedule {} has no groups of micro-batches", plan_.pipeline.schedule),
        "remove it");
    return;
  }
  if (microbatches_ == 0) return;
  if (plan_.pipeline.schedule == schedule::kCustomSchedule) {
    check_custom_schedule();
    return;
  }
  if (!plan_.pipeline.custom.slots.empty())
    findings_.error("/parallelism/pipeline/slots",
                    fmt::format("schedule {} has its own order", plan_.pipeline.schedule),
                    "remove them, or set the schedule to \"custom\"");
  if (schedule == nullptr) return;  // the reader knows the names
  const PipelineShape shape = plan::pipeline_shape(recipe_, plan_);
  if (const std::optional<std::string> why = schedule->unsupported(shape))
    findings_.error("/parallelism/pipeline/schedule", *why,
                    schedule->name == kGrouped ? possible_group(shape) : "");
  else if (microbatches_ < degrees_.pipeline && schedule->name != "sequential")
    findings_.warning("/parallelism/pp", fmt::format("{} micro-batches do not fill {} stages",
                                                     microbatches_, degrees_.pipeline));
}

void Validator::check_custom_schedule() {
  const std::string pointer = "/parallelism/pipeline/slots";
  const PipelineShape shape = plan::pipeline_shape(recipe_, plan_);
  const std::vector<std::string>& slots = plan_.pipeline.custom.slots;
  if (static_cast<int>(slots.size()) != shape.stages) {
    findings_.error(pointer,
                    fmt::format("{} stages have slots, pp is {}", slots.size(), shape.stages));
    return;
  }
  if (shape.placement == schedule::Placement::v_shaped && shape.chunks != 2) {
    findings_.error("/parallelism/pipeline/chunks_per_stage",
                    fmt::format("a V has 2 chunks per stage, got {}", shape.chunks));
    return;
  }
  if (shape.placement == schedule::Placement::bidirectional &&
      (shape.chunks != 1 || shape.stages % 2 != 0)) {
    findings_.error("/parallelism/pipeline/placement",
                    "two copies need an even number of stages with 1 chunk each");
    return;
  }
  schedule::StageOrders orders;
  bool parsed = true;
  for (std::size_t stage = 0; stage < slots.size(); ++stage) {
    std::optional<std::string> problem;
    orders.push_back(parse_slots(slots[stage], shape, problem));
    if (!problem) continue;
    findings_.error(fmt::format("{}/{}", pointer, stage), *problem);
    parsed = false;
  }
  if (!parsed) return;
  if (const std::optional<std::string> wrong = check_schedule(shape, orders))
    findings_.error(pointer, *wrong);
}

void Validator::check_precision() {
  const topologies::GpuSpec& gpu = scenario_.cluster.server.gpu;
  const std::array<std::pair<Dtype, FlopsPerSecond>, 5> peaks = {{{Dtype::fp32, gpu.fp32},
                                                                  {Dtype::tf32, gpu.tf32},
                                                                  {Dtype::fp16, gpu.fp16},
                                                                  {Dtype::bf16, gpu.bf16},
                                                                  {Dtype::fp8, gpu.fp8}}};
  std::string has;
  for (const auto& [dtype, peak] : peaks) {
    if (peak.count() <= 0) continue;
    if (dtype == recipe_.precision.compute) return;
    has += fmt::format("{}{}", has.empty() ? "it has " : ", ", name(dtype));
  }
  findings_.error("/training/precision/compute",
                  fmt::format("{} has no {} units", gpu.name.empty() ? "the GPU" : gpu.name,
                              name(recipe_.precision.compute)),
                  has);
}

void Validator::plausible(const char* pointer, BytesPerSecond value, double least, double most) {
  if (value.count() == 0 || (value.count() >= least && value.count() <= most)) return;
  findings_.warning(pointer,
                    fmt::format("{} is implausible, expected {} to {}", json::quantity_text(value),
                                json::quantity_text(BytesPerSecond(least)),
                                json::quantity_text(BytesPerSecond(most))));
}

void Validator::plausible(const char* pointer, Duration value) {
  constexpr Duration kMost = std::chrono::milliseconds(1);
  if (value <= kMost) return;
  findings_.warning(pointer, fmt::format("a latency of {} is implausible", to_text(value)));
}

// Magnitudes that no machine has: a slip of a unit.
void Validator::check_plausible() {
  const topologies::ServerSpec& server = scenario_.cluster.server;
  plausible("/cluster/node/intra/bandwidth_per_gpu", server.intra_bandwidth, 1e9, 4e12);
  plausible("/cluster/node/intra/latency", server.intra_latency);
  plausible("/cluster/node/nic/bandwidth", server.nic_bandwidth, 1e8, 4e11);
  plausible("/cluster/node/nic/latency", server.nic_latency);
  plausible("/cluster/node/host/pcie_bandwidth", server.pcie_bandwidth, 1e9, 5e11);
  plausible("/cluster/node/host/memory_bandwidth", server.host_memory_bandwidth, 1e10, 1e13);
  plausible("/cluster/node/host/nvme_read_bandwidth", server.nvme_read_bandwidth, 1e8, 1e12);
  plausible("/cluster/node/host/nvme_write_bandwidth", server.nvme_write_bandwidth, 1e8, 1e12);
  plausible("/cluster/node/gpu/memory_bandwidth", server.gpu.memory_bandwidth, 5e10, 5e13);
  constexpr std::array<std::pair<std::string_view, double>, 4> kBothDirections = {
      {{"v100", 300e9}, {"a100", 600e9}, {"h100", 900e9}, {"b200", 1800e9}}};
  for (const auto& [chip, both] : kBothDirections) {
    if (server.intra != topologies::IntraKind::nvswitch || server.intra_bandwidth.count() != both ||
        server.gpu.name.find(chip) == std::string::npos)
      continue;
    findings_.warning(
        "/cluster/node/intra/bandwidth_per_gpu",
        fmt::format("{} looks like both directions together",
                    json::quantity_text(server.intra_bandwidth)),
        fmt::format("did you mean \"{}\"?", json::quantity_text(BytesPerSecond(both / 2))));
  }
}

}  // namespace

void validate(const Scenario& scenario, const ScenarioSections& sections, Findings& findings) {
  Validator(scenario, sections, findings).run();
}

}  // namespace trainyard::scenario
