// Whose measurements a job is priced by: its own GPU's, another memory's, those of its kind.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "models/layer/kernel.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"
#include "tests/support/about.h"

using namespace trainyard;
using scenario::load_scenario;

namespace {

const char* const kNetwork = R"("version": 1, "name": "calibration",
  "model": { "layers": 8, "hidden": 4096, "heads": 32, "vocab": 51200 },
  "training": {
    "global_batch": 16, "micro_batch": 1, "sequence_length": 2048,
    "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" }
  },
  "parallelism": { "tp": 4, "pp": 2 })";

// A100 SXM4 80 GB from its datasheet, in a server as NVIDIA builds it.
std::string a100(const std::string& name, const std::string& more) {
  return R"("cluster": { "nodes": 1, "node": { "gpus": 8, "gpu": {)" + name +
         R"("memory": "80GiB", "memory_bandwidth": "2.039TB/s", "peak": { "fp32": "19.5TFLOP/s",
         "tf32": "156TFLOP/s", "fp16": "312TFLOP/s", "bf16": "312TFLOP/s" })" +
         more +
         R"(}, "intra": { "kind": "nvswitch", "bandwidth_per_gpu": "300GB/s",
         "latency": "1.1us" }}})";
}

const char* const kPreset = R"("cluster": { "nodes": 1, "node": { "preset": "dgx-a100-80gb" } })";

simulate::Job job(const std::string& cluster, const std::vector<std::string>& sets = {}) {
  test::Folder folder("calibration");
  const std::string text = fmt::format("{{{},\n{}}}", kNetwork, cluster);
  return simulate::job_of(load_scenario(folder.write("s.json", text), sets).base);
}

double step(const simulate::Job& job) {
  return seconds(simulate_step(job)->trace().end);
}

}  // namespace

TEST_CASE("a GPU that nobody has fitted reaches the median of its kind, not its peaks") {
  const simulate::Job own = job(a100(R"("name": "mine",)", ""));
  CHECK(own.prices[0].uncalibrated == "medians of a100-sxm4-40gb, a100-sxm4-80gb");
  REQUIRE(own.prices[0].profile);
  const double fitted = step(job(kPreset)), described = step(own);
  CHECK(described == about(fitted).within(0.02));
  const simulate::Job datasheet = job(a100(R"("name": "mine",)", ""), {"cluster.calibration=none"});
  CHECK(!datasheet.prices[0].profile);
  CHECK(datasheet.prices[0].uncalibrated == "datasheets");
  CHECK(step(datasheet) < 0.8 * fitted);
}

TEST_CASE("a GPU with the numbers of a preset keeps its profile, whatever it is called") {
  for (const char* const name : {"", R"("name": "mine",)"}) {
    const simulate::Job copy = job(a100(name, R"(, "l2": "40MiB", "multiprocessors": 108)"));
    CHECK(copy.prices[0].uncalibrated == "");
    REQUIRE(copy.prices[0].profile);
    CHECK(copy.prices[0].profile->name == "a100-sxm4-80gb");
    CHECK(step(copy) == step(job(kPreset)));
  }
  // How many multiprocessors it has is the preset's too, where the file does not say it.
  CHECK(step(job(a100("", R"(, "l2": "40MiB")"))) == step(job(kPreset)));
}

TEST_CASE("a preset with another memory or bandwidth counts as uncalibrated") {
  const simulate::Job preset = job(kPreset);
  CHECK(preset.prices[0].uncalibrated == "");
  CHECK(preset.warnings.empty());
  for (const auto& [key, set] : {std::pair{"memory_bandwidth", "memory_bandwidth=1.9TB/s"},
                                 {"memory", "memory=96GiB"},
                                 {"l2", "l2=20MiB"},
                                 {"peak/bf16", "peak.bf16=280TFLOP/s"}}) {
    CAPTURE(key);
    const simulate::Job changed = job(kPreset, {std::string("cluster.node.gpu.") + set});
    CHECK(changed.prices[0].uncalibrated ==
          std::string("the profile of a100-sxm4-80gb with another ") + key);
    CHECK(changed.warnings.size() == 1);
    REQUIRE(changed.prices[0].profile);
    for (const GemmLaw& law : changed.prices[0].profile->gemm)
      CHECK(law.from.basis == Basis::extrapolated);
  }
  // What changes no time of a kernel.
  CHECK(job(kPreset, {"cluster.node.gpu.power.busy=500W"}).prices[0].uncalibrated == "");
}

TEST_CASE("kin are GPUs for the same use, of the same tensor cores where there are any") {
  const auto kin_of = [](const std::string& peaks, const std::string& bandwidth) {
    return job(R"("cluster": { "nodes": 1, "node": { "gpus": 8, "gpu": { "memory": "80GiB",
        "memory_bandwidth": ")" +
               bandwidth + R"(", "peak": {)" + peaks + R"(} },
        "intra": { "kind": "pcie", "bandwidth_per_gpu": "25GB/s" } } })")
        .prices[0]
        .uncalibrated;
  };
  // B200, MI300X; RTX 3090; T4.
  CHECK(kin_of(R"("fp32": "75TFLOP/s", "bf16": "2250TFLOP/s", "fp8": "4500TFLOP/s")", "8TB/s") ==
        "medians of b200-180gb, gb200-186gb, h100-sxm5-80gb, h200-sxm5-141gb");
  CHECK(kin_of(R"("fp32": "163TFLOP/s", "bf16": "1307TFLOP/s", "fp8": "2614TFLOP/s")", "5.3TB/s") ==
        "medians of b200-180gb, gb200-186gb, h100-sxm5-80gb, h200-sxm5-141gb");
  CHECK(kin_of(R"("fp32": "35.6TFLOP/s", "bf16": "71TFLOP/s")", "936GB/s") ==
        "medians of rtx-4090");
  const simulate::Job k40 =
      job(R"("cluster": { "nodes": 1, "node": { "gpus": 8, "gpu": { "memory": "12GiB",
        "memory_bandwidth": "288GB/s", "compute_capability": "3.5", "peak": {"fp32": "5TFLOP/s"} },
        "intra": { "kind": "pcie", "bandwidth_per_gpu": "10GB/s" } } })",
          {"training.precision={\"compute\": \"fp32\"}"});
  CHECK(k40.prices[0].uncalibrated == "medians of p100-sxm2-16gb");  // neither has tensor cores
}

TEST_CASE("a share of the peak that no law is made from is no silent no") {
  const auto warnings = [](const std::string& gpu, const std::vector<std::string>& sets) {
    std::vector<std::string> shares;
    for (const std::string& warning :
         job(R"("cluster": { "nodes": 1, "node": { "gpus": 8, "gpu": { "preset": ")" + gpu +
                 R"(" }, "intra": { "kind": "pcie", "bandwidth_per_gpu": "25GB/s" } } })",
             sets)
             .warnings)
      if (warning.find("sustained") != std::string::npos) shares.push_back(warning);
    return shares;
  };
  const std::vector<std::string> both = {"cluster.node.gpu.sustained.bf16=0.5",
                                         "cluster.node.gpu.sustained.fp32=0.5"};
  CHECK(warnings("rtx-4090", both) ==
        std::vector<std::string>{"/cluster/node/gpu/sustained/bf16 changes nothing: the profile "
                                 "rtx-4090 has a law of bf16 products; cluster.calibration takes "
                                 "others"});
  CHECK(warnings("l4", both).empty());
  CHECK(warnings("rtx-4090", {}).empty());  // whose preset has shares
  std::vector<std::string> bare = both;
  bare.push_back("cluster.calibration=none");
  CHECK(warnings("l4", bare) ==
        std::vector<std::string>{
            "/cluster/node/gpu/sustained/fp32 changes nothing: datasheets are taken as they are",
            "/cluster/node/gpu/sustained/bf16 changes nothing: datasheets are taken as they are"});
}

TEST_CASE("products of a GPU without a profile are as fast as they were measured on it") {
  const auto rate = [](const std::string& gpu, models::Dtype dtype,
                       const std::vector<std::string>& sets = {}) {
    const simulate::Job priced =
        job(R"("cluster": { "nodes": 1, "node": { "gpus": 8, "gpu": { "preset": ")" + gpu +
                R"(" }, "intra": { "kind": "pcie", "bandwidth_per_gpu": "25GB/s" } } })",
            [&] {
              std::vector<std::string> all = {"training.precision={\"compute\": \"fp32\"}"};
              all.insert(all.end(), sets.begin(), sets.end());
              return all;
            }());
    models::Gemm product;
    product.m = product.n = product.k = 8192;
    product.dtype = dtype;
    const auto costs =
        fitted_compute_cost(*priced.prices[0].profile, simulate::peaks(priced.cluster.server.gpu));
    return flops(product).count() / costs->time(product).time.count() * 1e-12;
  };
  const auto near = [](double teraflops) { return about(teraflops).within(0.03); };
  CHECK(rate("l4", models::Dtype::fp16) == near(0.553 * 121));
  CHECK(rate("l4", models::Dtype::fp32) == near(0.452 * 30.3));
  // In shares, so that they follow what a scenario makes of the GPU.
  CHECK(rate("l4", models::Dtype::fp32, {"cluster.node.gpu.peak.fp32=60.6TFLOP/s"}) ==
        near(0.452 * 60.6));
  CHECK(rate("l4", models::Dtype::fp32, {"cluster.node.gpu.sustained.fp32=0.9"}) ==
        near(0.9 * 30.3));
  // A profile has no law of fp32, and one of bf16 that stands.
  CHECK(rate("rtx-4090", models::Dtype::fp32) == near(0.68 * 82.6));
  CHECK(rate("rtx-4090", models::Dtype::fp32, {"cluster.node.gpu.memory=48GiB"}) ==
        near(0.68 * 82.6));
  CHECK(rate("rtx-4090", models::Dtype::bf16, {"cluster.node.gpu.sustained.bf16=0.1"}) > 150);
  // Tensor cores follow each other, not CUDA cores and no board of other power.
  CHECK(rate("rtx-3090", models::Dtype::tf32) == near(1.07 * 35.6));
  CHECK(rate("l40s", models::Dtype::tf32) == near(0.73 * 181));
  CHECK(rate("a10g", models::Dtype::fp16) == near(0.996 * 70));
  // The RTX 3090's, beside whose CUDA cores tensor cores are as fast; nobody's for the TITAN RTX,
  // whose tensor cores are not slowed as those of the others of its design.
  CHECK(rate("a10g", models::Dtype::fp32) == near(0.727 * 35));
  CHECK(rate("titan-rtx", models::Dtype::fp16) < 0.7 * 130.5);
}

TEST_CASE("links between GPUs are as far below their rate as those of the kin") {
  const auto bandwidth = [](const simulate::Job& priced) {
    REQUIRE(priced.prices[0].profile);
    for (const cost::CollectiveLaw& law : priced.prices[0].profile->collectives)
      if (law.kind == CollectiveKind::all_reduce && law.ranks == 8) return law.bandwidth.count();
    return 0.0;
  };
  const auto own = [](const std::string& link) {
    return job(a100(R"("name": "mine",)", ""), {"cluster.node.intra.bandwidth_per_gpu=" + link});
  };
  const double fitted = bandwidth(job(kPreset));
  CHECK(fitted > 1e11);
  CHECK(bandwidth(own("300GB/s")) == about(fitted));
  CHECK(bandwidth(own("150GB/s")) == about(fitted / 2));
  const simulate::Job pcie = job(a100(R"("name": "mine",)", ""), {"cluster.node.intra.kind=pcie"});
  REQUIRE(pcie.prices[0].profile);
  CHECK(pcie.prices[0].profile->collectives.empty());
  CHECK(pcie.prices[0].profile->point_to_point.empty());
}

TEST_CASE("the profile of another GPU is refused unless it is asked for") {
  const std::vector<std::string> other = {"cluster.calibration=h100-sxm5-80gb"};
  CHECK_THROWS_AS(job(kPreset, other), ScenarioError);
  const simulate::Job accepted =
      job(kPreset, {other.front(), "cluster.calibration_of_other_gpu=true"});
  CHECK(accepted.prices[0].uncalibrated == "the profile of h100-sxm5-80gb");
  CHECK(job(kPreset, {"cluster.calibration=kind"}).prices[0].uncalibrated ==
        "medians of a100-sxm4-40gb, products as measured on a100-pcie-40gb, a100-pcie-80gb");
}

TEST_CASE("a report says beside the step time that it is uncalibrated") {
  test::Folder folder("calibration-report");
  const std::string path = folder.write(
      "s.json", std::string("{") + kNetwork + ",\n" + a100(R"("name": "mine",)", "") + "}");
  const simulate::StepReport report = simulate::simulate(load_scenario(path).base).report;
  CHECK(!is_calibrated(report));
  CHECK(!report.estimate_class.profile);
  CHECK(describe_basis(report).find("uncalibrated: the GPU is priced by medians of a100-sxm4-40gb, "
                                    "a100-sxm4-80gb; of the predicted time ") == 0);
}
