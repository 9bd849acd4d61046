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
    validate_batch(scenario_, findings_);
    validate_pipeline(scenario_, findings_);
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
