// A CPU as a device: who prices it, and what it has instead of launches and a driver.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "sim/scenario/gpu_origin.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const std::string kConfigs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";

Job job(ProcessorKind kind) {
  Transformer network = gpt(4, 512, 8, 8192);
  Job result;
  result.network = network;
  result.cluster = toy::cluster(1, 1);
  result.cluster.server.gpu.kind = kind;
  result.recipe.global_batch = 2;
  result.recipe.micro_batch.size = 2;
  result.recipe.micro_batch.sequence_length = 256;
  return result;
}

Duration step_of(ProcessorKind kind, std::int64_t launch_us) {
  Job own = job(kind);
  own.recipe.launch_time = Duration(launch_us * 1'000'000);
  return simulate_step(own)->trace().end;
}

std::int64_t kernels_of(const Job& job) {
  std::int64_t count = 0;
  const auto step = simulate_step(job);
  const Program& program = step->plan.cast.roles[0].program;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == OpKind::compute) count += program.segments[op.subject].kernels;
  return count;
}

}  // namespace

TEST_CASE("a CPU is busy while it calls a kernel, and a GPU is not") {
  const Duration bare = step_of(ProcessorKind::cpu, 0);
  CHECK(bare == step_of(ProcessorKind::gpu, 0));
  const std::int64_t kernels = kernels_of(job(ProcessorKind::cpu));
  for (const std::int64_t launch : {1, 20, 5000})
    CHECK(step_of(ProcessorKind::cpu, launch) == bare + Duration(launch * 1'000'000 * kernels));
  CHECK(step_of(ProcessorKind::gpu, 20) < step_of(ProcessorKind::cpu, 20));
}

TEST_CASE("CPUs are priced by fitted CPUs, and GPUs never are") {
  int cpus = 0;
  for (const Preset& preset : list_presets(kConfigs)) {
    if (preset.kind != "gpu") continue;
    CAPTURE(preset.name);
    const GpuSpec gpu = gpu_of_preset(kConfigs, preset.name);
    cpus += gpu.is_cpu() ? 1 : 0;
    for (const FittedGpu& fitted : fitted_kin(gpu, kConfigs)) {
      const bool by_cpu = fitted.profile.find("epyc") != std::string::npos;
      CHECK(by_cpu == gpu.is_cpu());
    }
    const bool is_fitted = !own_profile(gpu, kConfigs).empty();
    if (gpu.is_cpu() && !is_fitted) CHECK(fitted_kin(gpu, kConfigs).size() == 1);
  }
  CHECK(cpus >= 3);
}

TEST_CASE("a CPU holds tensors in its host's memory and no driver's context") {
  const std::string path = kConfigs + "/scenarios/guide/cpu-training.json";
  const auto loaded = [&](const std::string& change) {
    return load_scenario(path, {change}, {.variant = ""}).base;
  };
  for (const bool cpu : {true, false}) {
    const Scenario scenario = loaded(std::string("cluster.node.gpu=") + (cpu ? "epyc-9654" : "t4"));
    const recipe::MemoryAllowance& memory = scenario.recipe.memory;
    CHECK(memory.context.value() == (cpu ? Bytes(0) : Bytes(std::int64_t{512} << 20)));
    CHECK((memory.blas_workspace.value() == Bytes(0)) == cpu);
    CHECK(device_in_a_word(scenario.cluster) == (cpu ? "CPU" : "GPU"));
  }
  CHECK(loaded(R"(training.memory={"context":"1GiB"})").recipe.memory.context.value() ==
        Bytes(std::int64_t{1} << 30));
}

TEST_CASE("stages on CPUs send over the slots that their description says") {
  Job own = job(ProcessorKind::cpu);
  own.cluster = toy::cluster(2, 1);
  own.cluster.server.gpu.kind = ProcessorKind::cpu;
  own.plan.degrees.pipeline = 2;
  own.cluster.server.intra = IntraKind::none;
  const auto step = [&own](double link, double host, double slot) {
    own.cluster.server.intra_bandwidth = BytesPerSecond(link);
    own.cluster.server.pcie_bandwidth = BytesPerSecond(host);
    own.cluster.server.gpu.pcie_bandwidth = BytesPerSecond(slot);
    return simulate_step(own)->trace().end;
  };
  CHECK(step(1e9, 0, 0) == step(0, 1e9, 0));
  CHECK(step(1e9, 0, 0) == step(0, 0, 1e9));
  CHECK(step(0, 0, 1e9) > step(0, 0, 10e9));
}

TEST_CASE("beside GPUs a CPU has no driver's context, and GPUs keep theirs") {
  Job mixed = job(ProcessorKind::gpu);
  mixed.cluster = toy::cluster(2, 1);
  mixed.plan.degrees.data = 2;
  mixed.recipe.global_batch = 4;
  mixed.recipe.memory = {.context = Bytes(1 << 29), .blas_workspace = Bytes(1 << 23)};
  mixed.recipe.memory.nccl_buffers = true;
  GpuSpec cpu = mixed.cluster.server.gpu;
  cpu.kind = ProcessorKind::cpu;
  cpu.name = "processors";
  for (const int at : {0, 1}) {
    CAPTURE(at);
    mixed.cluster.server.other_gpus = {{{at}, cpu}};
    mixed.prices.resize(2);
    const auto step = simulate_step(mixed);
    REQUIRE(step->devices.size() == 2);
    for (std::size_t c = 0; c < 2; ++c) {
      const bool is_cpu = step->lowered.classes[c].representative == at;
      CHECK((step->devices[c].context == Bytes(0)) == is_cpu);
      CHECK((step->devices[c].blas_workspace == Bytes(0)) == is_cpu);
      CHECK((step->devices[c].nccl_buffers == Bytes(0)) == is_cpu);
    }
  }
}
