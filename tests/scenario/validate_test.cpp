// Cross-field rules, one --set away from a valid scenario. Errors with positions are in wrong_test.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/plan/replicas/data_parallel.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Pointer and message of everything said about kSmall with these changes.
std::string said(const std::vector<std::string>& sets) {
  test::Folder folder("validate");
  const std::string path = folder.write("s.json", test::kSmall);
  std::string out;
  try {
    return test::warnings(load_scenario(path, sets).base);
  } catch (const ScenarioError& error) {
    for (const Diagnostic& diagnostic : error.diagnostics()) {
      if (!out.empty()) out += '\n';
      out += diagnostic.pointer + ": " + diagnostic.message;
      if (!diagnostic.hint.empty()) out += "; " + diagnostic.hint;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("degrees multiply to the GPUs, or the nearest that do are named") {
  CHECK(said({"parallelism.dp=2"}) == "");
  CHECK(said({"parallelism.dp=3"}) ==
        "/parallelism/dp: tp 2 x pp 2 x dp 3 = 12 GPUs, the cluster has 2 x 4 = 8; nearest: "
        "tp 2 x pp 2 x dp 2, tp 1 x pp 2 x dp 4, tp 2 x pp 1 x dp 4");
  CHECK(said({"parallelism.tp=3"})
            .find("/parallelism: tp 3 x pp 2 = 6 GPUs per replica, the cluster "
                  "has 2 x 4 = 8; nearest: ") == 0);
  // Micro-batches of 7 divide no batch of 64.
  CHECK(said({"parallelism.tp=3", "training.micro_batch=7"})
            .find("/parallelism: tp 3 x pp 2 = 6 GPUs per replica, the cluster has 2 x 4 = 8; "
                  "tp x pp must divide 8: 1, 2, 4 or 8") == 0);
}

TEST_CASE("attention is computed by the kernel that is named, if the GPU runs it") {
  test::Folder folder("attention");
  const std::string path = folder.write("s.json", test::kSmall);
  const auto kernel = [&](const std::string& gpu, const std::string& word) {
    const Scenario found =
        load_scenario(path, {"cluster.node.gpu=" + gpu, "training.fused_attention=" + word,
                             "training.precision.compute=fp16"})
            .base;
    const bool is_assumed =
        std::any_of(found.assumed.begin(), found.assumed.end(), [](const Assumption& assumption) {
          return assumption.pointer == "/training/fused_attention";
        });
    CHECK(is_assumed == (word == "true"));
    return std::string(name(found.recipe.kernels.attention));
  };
  CHECK(kernel("v100-sxm2-16gb", "true") == "fa1");
  CHECK(kernel("a100-sxm4-80gb", "true") == "fa2");
  CHECK(kernel("rtx-4090", "true") == "fa2");
  CHECK(kernel("h100-sxm5-80gb", "true") == "cudnn");
  CHECK(kernel("h100-sxm5-80gb", "false") == "unfused");
  for (const char* word : {"unfused", "sdpa_math", "fa1", "triton", "fa2", "fa3", "cudnn"})
    CHECK(kernel("h100-sxm5-80gb", word) == word);
  CHECK(said({"cluster.node.gpu=a100-sxm4-80gb", "training.fused_attention=fa3"}) ==
        "/training/fused_attention: FlashAttention-3 is written for compute capability 9.0, and "
        "a100-sxm4-80gb has 8.0; \"fa2\" runs there");
  CHECK(said({"cluster.node.gpu=v100-sxm2-16gb", "training.fused_attention=fa2",
              "training.precision.compute=fp16"}) ==
        "/training/fused_attention: FlashAttention-2 needs compute capability 8.0, and "
        "v100-sxm2-16gb has 7.0; \"fa1\" runs there");
  CHECK(said({"training.fused_attention=fa4"})
            .find("/training/fused_attention: unknown fused_attention \"fa4\"") == 0);
  CHECK(said({"training.fused_attention=3"})
            .find("/training/fused_attention: expected one of false, true, unfused") == 0);
}

TEST_CASE("batches divide by micro-batch and replicas") {
  CHECK(said({"training.global_batch=63"}) ==
        "/training/global_batch: 63 is not divisible by micro_batch 1 x dp 2 = 2; nearest: 62, 64");
  CHECK(said({"training.global_batch=2", "training.micro_batch=4"}) ==
        "/training/global_batch: 2 is not divisible by micro_batch 4 x dp 2 = 8; the least is 8");
  CHECK(said({"training.global_batch=2"}) ==
        "/parallelism/pp: 1 micro-batches do not fill 2 stages");
}

TEST_CASE("an interleaved schedule of one chunk is told what it is") {
  const char* told =
      "/parallelism/pipeline/schedule: interleaved_1f1b of one chunk per stage is 1f1b";
  CHECK(said({"parallelism.pipeline.schedule=interleaved_1f1b"}) == told);
  CHECK(said({"parallelism.pipeline.schedule=interleaved_1f1b",
              "parallelism.pipeline.chunks_per_stage=2"}) == "");
}

TEST_CASE("clipping is told to flush a pipeline that else never does") {
  const std::string told =
      "/training/gradient_clipping: pipedream never flushes the pipeline, but each update then "
      "waits for the norm of all stages' gradients, which does";
  const std::string pipedream = "parallelism.pipeline.schedule=pipedream";
  const std::string clips = "training.gradient_clipping=true";
  CHECK(said({pipedream, clips}) == told);
  CHECK(said({pipedream}) == "");
  CHECK(said({clips}) == "");
}

TEST_CASE("what a network says and does not have is told") {
  CHECK(said({"model.positional=rope", "model.max_positions=4096"}) ==
        "/model/max_positions: means nothing: it has no table of positions");
  const std::vector<std::string> experts = {"model.biases=false", "model.moe.experts=4",
                                            "model.moe.top_k=2",
                                            "parallelism.sequence_parallel=true"};
  const auto with = [&](const char* set) {
    std::vector<std::string> sets = experts;
    sets.emplace_back(set);
    return said(sets);
  };
  CHECK(with("model.moe.first_dense=7") == "");
  CHECK(with("model.moe.first_dense=8").find("/model/moe: of 8 layers none is a mixture") == 0);
  CHECK(with("model.moe.every=9").find("/model/moe: of 8 layers none is a mixture") == 0);
}

TEST_CASE("layers are dealt evenly, by list, or by balance") {
  CHECK(said({"model.layers=9"}) ==
        "/parallelism/pp: 9 layers are not divisible by 2 stages; state "
        "/parallelism/pipeline/layer_split: a list of layers per stage, "
        "\"balanced_with_embeddings\", \"by_time\" or \"by_memory\"");
  CHECK(said({"model.layers=9", "parallelism.pipeline.layer_split=by_time"}) == "");
  CHECK(said({"model.layers=9", "parallelism.pipeline.layer_split=by_memory"}) == "");
  CHECK(said({"model.layers=9", "parallelism.pipeline.layer_split=[5,4]"}) == "");
  CHECK(said({"model.layers=9", "parallelism.pipeline.layer_split=balanced-with-embeddings"}) ==
        "");
  CHECK(said({"parallelism.pipeline.layer_split=[5,4]"}) ==
        "/parallelism/pipeline/layer_split: the numbers sum to 9, the network has 8 layers");
  CHECK(said({"parallelism.pipeline.layer_split=[2,2,4]"}) ==
        "/parallelism/pipeline/layer_split: 3 numbers for 2 stages");
  CHECK(said({"model.layers=1"}) ==
        "/parallelism/pp: 1 layers are too few for 2 stages; a stage goes without if "
        "/parallelism/pipeline/layer_split lists it with 0");
  CHECK(said({"model.layers=1", "parallelism.pipeline.layer_split=[0,1]"}) == "");
  CHECK(said({"model.layers=1", "parallelism.pipeline.layer_split=[1,0]"}) == "");
}

// Source: torch/distributed/pipelining/stage.py (backward_maybe_with_nosync).
TEST_CASE("with a pipeline fsdp and hsdp reduce gradients once per step unless told otherwise") {
  const auto reduces_often = [](std::vector<std::string> sets) {
    sets.push_back("parallelism.tp=1");
    test::Folder folder("validate");
    const Scenario scenario = load_scenario(folder.write("s.json", test::kSmall), sets).base;
    return plan::strategy_of(scenario.plan, scenario.recipe).each_microbatch;
  };
  CHECK_FALSE(reduces_often({"parallelism.data_parallel={\"kind\": \"fsdp\"}"}));
  CHECK_FALSE(reduces_often({"parallelism.data_parallel={\"kind\": \"hsdp\", \"shard_size\": 2}"}));
  CHECK(
      reduces_often({"parallelism.data_parallel={\"kind\": \"fsdp\", "
                     "\"reduce_every_microbatch\": true}"}));
  CHECK(reduces_often({"parallelism.data_parallel={\"kind\": \"fsdp\"}", "parallelism.pp=1"}));
  CHECK(reduces_often({"parallelism.data_parallel={\"kind\": \"zero2\"}"}));
}

TEST_CASE("chunks need a pipeline and an interleaved schedule") {
  CHECK(said({"parallelism.pp=1", "parallelism.pipeline.chunks_per_stage=2"}) ==
        "/parallelism/pipeline/chunks_per_stage: 2 chunks per stage need a pipeline, pp is 1");
  CHECK(
      said(
          {"parallelism.pipeline={\"schedule\": \"interleaved-1f1b\", \"chunks_per_stage\": 2}"}) ==
      "");
  CHECK(said({"parallelism.pipeline.chunks_per_stage=2"})
            .find("/parallelism/pipeline/chunks_per_stage: ") == 0);
}

TEST_CASE("micro-batches that stages do not divide go in a larger group, as in Megatron-LM") {
  const std::string pipeline =
      "parallelism.pipeline={\"schedule\": \"interleaved_1f1b\", \"chunks_per_stage\": 2";
  const auto with = [&](const std::string& more, int batch) {
    return said({pipeline + more + "}", "training.global_batch=" + std::to_string(batch)});
  };
  // Two stages, two replicas: five micro-batches.
  CHECK(with("", 10).find("a multiple of the 2 stages, got 5") != std::string::npos);
  CHECK(with("", 10).find("group_size to 3") != std::string::npos);
  CHECK(with(", \"group_size\": 3", 10) == "");
}

TEST_CASE("tensor parallelism divides what it splits") {
  CHECK(said({"model.kv_heads=1"}) == "");
  CHECK(
      said({"model.hidden=1000"}).find("/model/hidden: hidden 1000 is not divisible by 16 heads") ==
      0);
  CHECK(said({"model.hidden=1000", "model.head_dim=64"}) == "");
  CHECK(said({"parallelism.tp=8", "parallelism.pp=1"}) ==
        "/parallelism/tp: tp 8 spans servers of 4 GPUs: its collectives cross the network in every "
        "layer");
  CHECK(said({"model.vocab=50257"}) ==
        "/model/vocab: 50257 is padded to 50258 to divide it by tp 2");
  CHECK(said({"parallelism.sequence_parallel=true"}) == "");
  CHECK(said({"parallelism.sequence_parallel=true", "parallelism.tp=1"})
            .find("/parallelism/sequence_parallel: ") == 0);
}

TEST_CASE("number formats are those of the chip") {
  CHECK(said({"training.precision.compute=fp8"}) ==
        "/training/precision/compute: a100-sxm4-80gb has no fp8 units; it has fp32, tf32, fp16, "
        "bf16");
  CHECK(said({"training.precision.compute=fp8", "cluster.node.gpu=h100-sxm5-80gb"}) == "");
}

TEST_CASE("the profile is the GPU's own, one by name, or none") {
  test::Folder folder("profile");
  const std::string path = folder.write("s.json", test::kSmall);
  const auto profile = [&](const std::string& set) {
    return std::filesystem::path(load_scenario(path, {set}).base.profiles.front().path)
        .filename()
        .string();
  };
  CHECK(profile("name=x") == "a100-sxm4-80gb.json");
  CHECK(profile("cluster.calibration=none") == "");
  CHECK(profile("cluster.calibration=h100-sxm5-80gb") == "h100-sxm5-80gb.json");
  CHECK(said({"cluster.calibration=a101"}).find("/cluster/calibration: no profile \"a101\"; ") ==
        0);
}

TEST_CASE("magnitudes that no machine has are a warning") {
  CHECK(said({"cluster.node.intra.bandwidth_per_gpu=300MB/s"}) ==
        "/cluster/node/intra/bandwidth_per_gpu: 300MB/s is implausible, expected 1GB/s to 4TB/s");
  CHECK(said({"cluster.node.intra.bandwidth_per_gpu=600GB/s"}) ==
        "/cluster/node/intra/bandwidth_per_gpu: 600GB/s looks like both directions together");
  CHECK(said({"cluster.node.nic.latency=20ms"}) ==
        "/cluster/node/nic/latency: a latency of 20.0 ms is implausible");
  CHECK(said({"cluster.node.nic.bandwidth=400GB/s"}) ==
        "/cluster/node/nic/bandwidth: 400GB/s is implausible, expected 100MB/s to 150GB/s");
  CHECK(said({"cluster.node.gpu.peak.bf16=989EFLOP/s"}) ==
        "/cluster/node/gpu/peak/bf16: 989EFLOP/s is implausible, expected 10GFLOP/s to "
        "100PFLOP/s");
}

TEST_CASE("what collectives between servers take is checked where it stands") {
  const std::string nic = "cluster.node.nic.";
  CHECK(said({nic + "tree_steps=[{\"bytes\": \"4KiB\", \"time\": \"2us\"},"
                    "{\"bytes\": \"1KiB\", \"time\": \"9us\"}]"}) ==
        "/cluster/node/nic/tree_steps: sizes must grow from one step to the next; sort them by "
        "bytes");
  CHECK(said({nic + "efficiency=0.5", nic + "exchange_efficiency=2.5"}) ==
        "/cluster/node/nic/exchange_efficiency: an all-to-all would be faster than the NIC's line; "
        "its product with efficiency is at most 1");
  CHECK(said({nic + "efficiency=0.5", nic + "exchange_efficiency=2", nic + "start=14us"}) == "");
}

TEST_CASE("tables of layers are refused what they do not have") {
  const std::string resnet = "model={\"preset\": \"resnet50\"}";
  CHECK(said({resnet, "parallelism.tp=1"}) ==
        "/training/sequence_length: samples have no sequence; remove it");
  CHECK(said({resnet, "training.sequence_length=null"})
            .find("/parallelism/tp: the rows of a table are whole layers") == 0);
  CHECK(said({resnet, "training.sequence_length=null", "parallelism.tp=1",
              "parallelism.pipeline.layer_split=[8,8]"}) == "");
}

TEST_CASE("sizes that outgrow 64 bits are refused, not wrapped") {
  CHECK(said({"model.hidden=8388608", "model.layers=65536", "model.head_dim=64"})
            .find("/model: the sizes of the network") == 0);
  CHECK(said({"cluster.nodes=1000000"}) ==
        "/cluster/nodes: 1000000 servers of 4 GPUs are more than 1048576 GPUs");
}

TEST_CASE(
    "an oversubscribed network that closed forms leave out is a warning unless they are chosen") {
  test::Folder folder("oversubscription");
  const std::string path = folder.write("s.json", test::kSmall);
  const auto warned = [&](std::vector<std::string> sets, const char* tree) {
    sets.push_back(std::string("cluster.fabric=") + tree);
    return test::warnings(load_scenario(path, sets).base);
  };
  const char* const kTree = R"({"kind": "fat_tree", "oversubscription": [4]})";
  CHECK(warned({}, kTree).find("/cluster/fabric: closed forms leave out contention between "
                               "switches, so an oversubscription of 4 changes no time") == 0);
  CHECK(warned({}, R"({"kind": "clos", "levels": [{"name": "rack", "gpus": 4},
        {"name": "pod", "gpus": 64, "oversubscription": 2}]})")
            .find("oversubscription of 2") != std::string::npos);
  CHECK(warned({"simulation.fidelity=flow"}, kTree) == "");
  CHECK(warned({"simulation.fidelity=closed_form"}, kTree) == "");
  CHECK(warned({"cluster.nodes=1"}, kTree) == "");
  CHECK(warned({}, R"({"kind": "fat_tree"})") == "");
}

TEST_CASE("fp32 weights beside products of 16 bits are torch.autocast, where that is described") {
  const auto with = [](std::vector<std::string> more) {
    std::vector<std::string> set = {
        "training.precision.compute=bf16", "training.precision.parameters=fp32",
        "training.execution=eager", "training.fused_attention=true", "parallelism.tp=1"};
    set.insert(set.end(), more.begin(), more.end());
    return said(set);
  };
  const std::string parameters = "/training/precision/parameters: ";
  CHECK(with({}) == "");
  CHECK(with({"training.precision.compute=fp16"}) == "");
  CHECK(with({"parallelism.tp=2"}).find(parameters) == 0);
  CHECK(with({"training.execution=fused"}).find(parameters) == 0);
  CHECK(with({"training.execution=compiled"}).find(parameters) == 0);
  CHECK(with({"training.fused_attention=false"}) == "");
  CHECK(with({"training.fused_attention=false", "training.softmax=fp32"}) == "");
  CHECK(with({"training.fused_attention=false", "training.softmax=kernel"})
            .find("/training/softmax: ") == 0);
  CHECK(with({"training.precision.gradients=bf16"}).find("/training/precision/gradients: ") == 0);
  CHECK(with({"training.precision.master_weights=fp32"}).find("/training/precision/master") == 0);
  CHECK(with({"parallelism.data_parallel.kind=fsdp"}).find(parameters) == 0);
  CHECK(with({"training.gradient_accumulation=product"}).find("/training/gradient_accum") == 0);
}

TEST_CASE("execution and launch time are read, and what is not described is refused") {
  test::Folder folder("execution");
  const std::string path = folder.write("s.json", test::kSmall);
  const Scenario plain = load_scenario(path).base;
  CHECK(plain.recipe.kernels.fusion == Fusion::by_hand);
  CHECK(!plain.recipe.launch_time);
  const Scenario eager =
      load_scenario(path, {"training.execution=eager", "training.launch_time=6us"}).base;
  CHECK(eager.recipe.kernels.fusion == Fusion::eager);
  CHECK(eager.recipe.launch_time == Duration(std::chrono::microseconds(6)));
  CHECK(said({"training.execution=compiled"}) == "");
  CHECK(said({"training.execution=graphed"}).find("/training/execution: ") == 0);
  CHECK(said({"training.launch_time=1h"}) ==
        "/training/launch_time: expected at least 0 and at most 1s, got \"1h\"");
  CHECK(said({"training.launch_time=6"}).find("/training/launch_time: ") == 0);
}
