// /training/memory: what a device holds beside tensors, its table and its defaults. Sources:
// docs/memory.md, "Beside the tensors".
#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <string>

#include "models/families/network.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::recipe {

void visit_fields(json::Fields& f, MemoryAllowance& s) {
  f.field("context", s.context, json::not_negative,
          "What the driver, libraries and loaded kernels hold.");
  f.field("blas_workspace", s.blas_workspace, json::not_negative,
          "Of cuBLAS, from the framework's allocator. Default: PyTorch's, 32MiB from compute "
          "capability 9.0 on, else 8320KiB.");
  f.field("fragmentation", s.fragmentation, json::between(0, 1),
          "Reserved by the framework's allocator beyond what is allocated, in parts of that.");
  f.field("least_fragmentation", s.least_fragmentation, json::between(0, 1),
          "What is left of it when the allocator, short of room, has given back what it can: so "
          "much has to fit. Default: all of it.");
  f.field("nccl_buffers", s.nccl_buffers, json::optional,
          "NCCL's own buffers of every communicator are counted.");
  f.field("kept_outputs", s.kept_outputs, json::between(0, 1 << 10),
          "Micro-batches whose logits the trainer holds beside the loss, in the type of their "
          "product: 2 in pipelines that keep a stage's outputs until their buffer is written "
          "again.");
  f.field("launches_ahead", s.launches_ahead, json::between(0, 1 << 20),
          "Launches that the host is ahead of the GPU at most: blocks of tensor-parallel "
          "collectives stay reserved until the GPU has passed them, as far as there is room.");
  f.field("late_share", s.late_share, json::between(0, 1),
          "Part of these blocks that has to fit, as an allocator that is short of room does not "
          "get it back.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {
namespace {

using namespace literals;

// PyTorch's CUBLAS_WORKSPACE_CONFIG: ":4096:2:16:8" in KiB, from Hopper on 32 MiB.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp; NVIDIA cuBLAS documentation, cublasSetWorkspace.
Bytes blas_workspace(const topologies::GpuSpec& gpu) {
  constexpr int kHopper = 9;
  const std::string& capability = gpu.compute_capability;
  int major = 0;
  std::from_chars(capability.data(), capability.data() + capability.size(), major);
  return major >= kHopper ? 32_MiB : Bytes((4096 * 2 + 16 * 8) * 1024);
}

}  // namespace

recipe::MemoryAllowance usual_memory() {
  recipe::MemoryAllowance memory;
  memory.context.otherwise(512_MiB);
  memory.fragmentation.otherwise(0.02);
  memory.nccl_buffers = true;
  return memory;
}

recipe::MemoryAllowance assemble_memory(recipe::MemoryAllowance memory,
                                        const topologies::GpuSpec& gpu) {
  if (gpu.is_cpu()) {
    for (Option<Bytes>* held : {&memory.context, &memory.blas_workspace})
      held->otherwise(Bytes(0));
    memory.fragmentation.otherwise(0);
  } else {
    memory.blas_workspace.otherwise(blas_workspace(gpu));
  }
  memory.least_fragmentation.otherwise(memory.fragmentation);
  return memory;
}

void validate_memory(const Scenario& scenario, Findings& findings) {
  if (scenario.recipe.memory.late_share > 0 && scenario.recipe.memory.launches_ahead == 0)
    findings.error("/training/memory/late_share", "nothing comes back late: launches_ahead is 0",
                   "remove it, or say how far the host is ahead");
  if (scenario.recipe.memory.least_fragmentation > scenario.recipe.memory.fragmentation)
    findings.error("/training/memory/least_fragmentation",
                   fmt::format("more than the fragmentation, {}",
                               scenario.recipe.memory.fragmentation.value()),
                   "say no more than that");
  if (scenario.recipe.memory.kept_outputs == 0) return;
  const models::NetworkWork work =
      network_work(scenario.network, plan::execution(scenario.recipe, scenario.plan));
  if (work.kinds[static_cast<std::size_t>(work.chain.back())].outputs > Bytes(0)) return;
  findings.error(
      "/training/memory/kept_outputs",
      fmt::format("how large the outputs of {} are is not described", scenario.network.words()),
      "remove it");
}

}  // namespace trainyard::scenario
