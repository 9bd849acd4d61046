// On clusters of several kinds: memory of hosts, copies, buffers and sources of each.
#include <doctest/doctest.h>

#include <array>
#include <set>

#include "tests/simulate/mixed_jobs.h"

using namespace trainyard;
using test::kGpt;
using test::scenario_of;

namespace {

// A DGX A100, then a DGX-1V, with `more` beside "cluster" and in it.
scenario::Scenario two_servers(const std::string& in_cluster, const std::string& more,
                               const std::vector<std::string>& sets = {}) {
  return scenario_of(fmt::format(R"({}, "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb",
                                      "other_nodes": [{{ "node": "dgx-1v-32gb" }}] {} }} {})",
                                 kGpt, in_cluster, more),
                     sets);
}

}  // namespace

TEST_CASE("each server is judged by its own memory") {
  const char* const offload = R"(, "parallelism": { "tp": 8 })";
  const auto host = [&](const char* first, const char* second) {
    const StepReport report =
        simulate::simulate(
            two_servers(
                "", offload,
                {"training.offload.optimizer=cpu", std::string("cluster.node.host.memory=") + first,
                 std::string("cluster.other_nodes.0.node.host.memory=") + second}))
            .report;
    REQUIRE(report.host_memory);
    return *report.host_memory;
  };
  CHECK(host("1TiB", "2TiB").memory_capacity == Bytes(std::int64_t{1} << 40));
  CHECK(host("2TiB", "1TiB").memory_capacity == Bytes(std::int64_t{1} << 40));
  CHECK(host("1TiB", "2TiB").fits);
  CHECK(!host("1TiB", "1MiB").fits);
  CHECK(!host("1MiB", "1TiB").fits);
  // The parameters' server holds them alone.
  const StepReport served =
      simulate::simulate(
          two_servers("", R"(, "parallelism": { "data_parallel": { "kind": "parameter_server" } })",
                      {"cluster.other_nodes.0.node.host.memory=1MiB"}))
          .report;
  CHECK(served.fits);
}

TEST_CASE("copies to the host go by the laws of the GPU that makes them") {
  Job job = simulate::job_of(
      two_servers("", R"(, "parallelism": { "tp": 8 })", {"training.offload.optimizer=cpu"}));
  const auto host_time = [&](int kind) {
    const auto step = simulate_step(job);
    Seconds sum{};
    for (const std::vector<TransferEstimate>& table : step->lowered.transfers)
      for (const TransferEstimate& estimate : table)
        if (estimate.host == HostTransfer::to_host && estimate.shape.gpu_kind == kind)
          sum += estimate.terms.latency;
    return sum.count();
  };
  HostCopyLaw law;
  law.to_device = false;
  law.start = Seconds(1);
  law.bandwidth = BytesPerSecond(1e9);
  const auto copies_by = [](GpuPrice& price, const std::vector<HostCopyLaw>& laws) {
    REQUIRE(price.profile);
    cost::Profile profile = *price.profile;
    profile.host_copies = laws;
    price = {profile, price.uncalibrated};
  };
  for (GpuPrice& price : job.prices)
    copies_by(price, {});
  const double before = host_time(0);
  copies_by(job.prices[1], {law});
  CHECK(host_time(0) == before);
  CHECK(host_time(1) >= 1);
}

TEST_CASE("buffers of NCCL are those of the server's own links") {
  const auto buffers = [&](const char* first, const char* second) {
    const Job job = simulate::job_of(scenario_of(
        fmt::format(R"({}, "cluster": {{ "nodes": 1, "node": "{}", "other_nodes": [{{ "node": "{}"
          }}] }}, "parallelism": {{ "tp": 4 }})",
                    kGpt, first, second),
        {"training.precision.compute=fp32", "cluster.calibration=none"}));
    const auto step = simulate_step(job);
    std::array<std::set<std::int64_t>, 2> by_kind;
    for (std::size_t c = 0; c < step->devices.size(); ++c)
      by_kind[static_cast<std::size_t>(step->lowered.classes[c].gpu_kind)].insert(
          step->devices[c].nccl_buffers.count());
    return std::pair(by_kind[0], by_kind[1]);
  };
  const auto [switched, meshed] = buffers("dgx-a100-80gb", "dgx-1v");
  const auto [meshed_first, switched_last] = buffers("dgx-1v", "dgx-a100-80gb");
  CHECK(switched == switched_last);
  CHECK(meshed == meshed_first);
  CHECK(*switched.begin() > *meshed.begin());
}

TEST_CASE("sources, warnings and files name each kind in use") {
  const scenario::Scenario scenario = two_servers("", R"(, "parallelism": { "tp": 8 })");
  const StepReport both = simulate::simulate(scenario).report;
  const auto gemm_of = [](const StepReport& report, const std::string& gpu) {
    return std::count_if(report.sources.begin(), report.sources.end(), [&](const auto& note) {
      return note.what == (gpu.empty() ? "GEMM fp16" : "GEMM fp16 (" + gpu + ")");
    });
  };
  CHECK(gemm_of(both, "a100-sxm4-80gb") == 1);
  CHECK(gemm_of(both, "v100-sxm2-32gb") == 1);
  const StepReport one =
      simulate::simulate(two_servers(R"(, "gpus_used": [0, 8])", R"(, "parallelism": { "tp": 8 })"))
          .report;
  CHECK(gemm_of(one, "") == 1);
  CHECK(one.profile == "v100-sxm2-32gb");
  // 16 GPUs across servers of 4 and 8 would cross; the server of 4 is not used.
  const scenario::Scenario unused =
      scenario_of(fmt::format(R"({}, "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb",
        "other_nodes": [{{ "node": "g4dn.12xlarge" }}], "gpus_used": [8, 0] }},
        "parallelism": {{ "tp": 8 }})",
                              kGpt));
  CHECK(unused.warnings.empty());
}

TEST_CASE("by speed of one sample each says that nothing can be dealt") {
  const auto warnings = [&](const char* micro_batch) {
    return two_servers(
               "",
               R"(, "parallelism": { "tp": 8, "data_parallel": { "batch_split": "by_speed" } })",
               {micro_batch})
        .warnings;
  };
  CHECK(warnings("training.micro_batch=2").empty());
  const std::vector<Diagnostic> found = warnings("training.micro_batch=1");
  REQUIRE(found.size() == 1);
  CHECK(found[0].pointer == "/parallelism/data_parallel/batch_split");
}
