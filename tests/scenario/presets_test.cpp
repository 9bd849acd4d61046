#include <doctest/doctest.h>

#include <algorithm>

#include "sim/scenario/scenario.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("every preset is listed by kind and name, with a description") {
  const std::vector<Preset> presets = list_presets(std::string(TRAINYARD_SOURCE_DIR) + "/configs");
  const auto has = [&](const std::string& kind, const std::string& name) {
    return std::any_of(presets.begin(), presets.end(), [&](const Preset& preset) {
      return preset.kind == kind && preset.name == name;
    });
  };
  CHECK(has("model", "resnet50"));
  CHECK(has("model", "gpt3-175b"));
  CHECK(has("gpu", "h100-sxm5-80gb"));
  CHECK(has("server", "dgx-1v"));
  CHECK(has("cluster", "selene"));
  for (const Preset& preset : presets) {
    CAPTURE(preset.name);
    CHECK_FALSE(preset.description.empty());
  }
  CHECK(std::is_sorted(presets.begin(), presets.end(), [](const Preset& a, const Preset& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
  }));
}

TEST_CASE("every GPU and every server that is listed can be trained on") {
  const test::Folder folder("machines");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::vector<std::string> job = {"training.precision=null", "cluster.nodes=1",
                                        "parallelism=null"};
  for (const Preset& preset : list_presets(std::string(TRAINYARD_SOURCE_DIR) + "/configs")) {
    if (preset.kind != "gpu" && preset.kind != "server") continue;
    CAPTURE(preset.name);
    std::vector<std::string> changes = job;
    if (preset.kind == "gpu") {
      changes.push_back("cluster.node.gpu=" + preset.name);
      changes.push_back("cluster.node.gpus=1");
    } else {
      changes.push_back("cluster.node=" + preset.name);
      // A multiple of the GPUs: pods have 256 to 8,960.
      changes.push_back(preset.name.ends_with("-pod") ? "training.global_batch=286720"
                                                      : "training.global_batch=144");
    }
    CHECK(test::problems(path, changes) == "");
  }
}

TEST_CASE("the configs folder is found upwards from a scenario") {
  const std::string configs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";
  CHECK(configs_folder(configs + "/scenarios/four-strategies.json") == configs_folder(configs));
  const std::string fallback = configs_folder("/");
  CHECK(fallback.substr(fallback.size() - 7) == "configs");
}

TEST_CASE("a project's own configs folder holds what it adds, the shipped one the rest") {
  const test::Folder folder("own-configs");
  folder.write("configs/models/tiny.json", R"({"kind": "transformer", "layers": 2, "hidden": 64,
    "heads": 4, "vocab": 100})");
  const std::string path = folder.write("configs/mine.json", R"({"version": 1, "name": "mine",
    "model": {"preset": "tiny"},
    "cluster": {"nodes": 1, "node": {"preset": "dgx-a100-80gb"}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence_length": 32,
      "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}}})");
  const ScenarioSet set = load_scenario(path);
  CHECK(set.base.cluster.server.gpu.name == "a100-sxm4-80gb");
  CHECK(set.base.network.as<Transformer>().layers == 2);
  CHECK_FALSE(set.base.profiles.front().path.empty());
}

TEST_CASE("a file where a preset is expected is told how presets are named") {
  const test::Folder folder("named-files");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::string own = test::problems(path, {"cluster.node=mybox.json"});
  CHECK(own.find("a preset is a file of configs/servers, named without path and .json; your own "
                 "stand in a folder configs/servers beside the scenario") != std::string::npos);
  CHECK(own.find("nearest") == std::string::npos);
  CHECK(test::problems(path, {"cluster.node=configs/servers/dgx-h100.json"})
            .find(R"(without path and .json: "dgx-h100";)") != std::string::npos);
}

TEST_CASE("a preset of another kind is sent to its place") {
  const test::Folder folder("other-kinds");
  const std::string path = folder.write("s.json", test::kSmall);
  for (const auto& [set, cure] : std::vector<std::pair<std::string, std::string>>{
           {R"(cluster={"preset": "dgx-h100"})", "server preset: write it at /cluster/node"},
           {"cluster.node=selene", "cluster preset: write it at /cluster/preset"},
           {"cluster.node=a40", "gpu preset: write it at /cluster/node/gpu"},
           {"cluster.node.gpu=dgx-h100", "server preset: write it at /cluster/node"},
           {"model.preset=torchtitan", "software preset: write it at /software"},
           {"software=llama3-8b", "model preset: write it at /model/preset"}}) {
    CAPTURE(set);
    CHECK(test::problems(path, {set}).find("; it is a " + cure) != std::string::npos);
  }
}

TEST_CASE("what contradicts a preset is told where the scenario says it") {
  const test::Folder folder("contradicted");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::string model = R"(model={"preset": "llama3-8b"})";
  const std::string heads = test::problems(path, {model, "model.heads=7"});
  CHECK(heads.find(
            "--set model.heads=7: error: /model/hidden: hidden 4096 is not divisible by 7") == 0);
  CHECK(heads.find("; hidden is of ") != std::string::npos);
  const std::string server = test::problems(
      path, {"cluster.node=p3dn.24xlarge", "parallelism.tp=1", "parallelism.pp=1",
             "training.precision.compute=fp16", "parallelism.data_parallel.kind=parameter_server"});
  CHECK(server.find("--set cluster.node=p3dn.24xlarge: error: /cluster/node/host/") == 0);
  CHECK(server.find("state it in the scenario") != std::string::npos);
}

TEST_CASE("of a name that is like none the others are counted or listed") {
  const test::Folder folder("unlike-names");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::string model = test::problems(path, {"model.preset=foo"});
  CHECK(model.find("unknown model preset \"foo\"; none of the ") != std::string::npos);
  CHECK(model.find("is near it; 'trainyard presets' lists them") != std::string::npos);
  CHECK(
      test::problems(path, {"cluster.calibration=foo"}).find("no profile \"foo\"; known: a100-") !=
      std::string::npos);
}

TEST_CASE("a transport takes the place of what the server's preset says of one") {
  const test::Folder folder("transports");
  const std::string path = folder.write("s.json", test::kSmall);
  const auto nic = [&](std::vector<std::string> sets) {
    sets.push_back("cluster.node.gpus=4");
    return load_scenario(path, sets).base.cluster.server;
  };
  const std::string name = "cluster.node.nic.transport=";
  const topologies::ServerSpec ib = nic({"cluster.node=dgx-a100-40gb"});
  CHECK(ib.nic_efficiency == 0.9);
  CHECK(ib.nic_exchange_steps.size() == 6);
  const topologies::ServerSpec tcp = nic({"cluster.node=dgx-a100-40gb", name + "tcp"});
  CHECK(tcp.nic_efficiency == 0.144);
  CHECK(tcp.nic_start != ib.nic_start);
  CHECK(tcp.nic_bandwidth == ib.nic_bandwidth);
  // Of an all-to-all efa says nothing, and InfiniBand's figures are not its own.
  const topologies::ServerSpec efa = nic({"cluster.node=dgx-a100-40gb", name + "efa"});
  CHECK(efa.nic_exchange_steps.empty());
  CHECK(efa.nic_tree_steps.size() == 9);
  const topologies::ServerSpec own =
      nic({"cluster.node=dgx-a100-40gb", name + "tcp", "cluster.node.nic.efficiency=0.3"});
  CHECK(own.nic_efficiency == 0.3);
  CHECK(own.nic_start == tcp.nic_start);
  CHECK(test::problems(path, {name + "socket"}) ==
        "--set " + name +
            "socket: error: /cluster/node/nic/transport: unknown transport \"socket\"; nearest: "
            "sockets");
  CHECK(test::problems(path, {name + "7"})
            .find("/cluster/node/nic/transport: expected a name, got 7") != std::string::npos);
}

TEST_CASE("a device finds its preset by the name that the driver says") {
  const std::string configs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";
  CHECK(gpu_of_device(configs, "NVIDIA H200")->name == "h200-sxm5-141gb");
  CHECK(gpu_of_device(configs, "NVIDIA A100-SXM4-80GB")->name == "a100-sxm4-80gb");
  CHECK(gpu_of_device(configs, "NVIDIA H100 80GB HBM3")->multiprocessors == 132);
  CHECK(gpu_of_device(configs, "NVIDIA GeForce RTX 4090")->name == "rtx-4090");
  CHECK(gpu_of_device(configs, "Tesla V100-SXM2-32GB")->name == "v100-sxm2-32gb");
  CHECK_FALSE(gpu_of_device(configs, "NVIDIA"));
  const test::Folder folder("device-names");
  folder.write("configs/gpus/mine.json", R"({"name": "mine", "device_names": ["My GPU", 7]})");
  CHECK_THROWS_AS(gpu_of_device(folder.path() + "/configs", "My GPU"), ScenarioError);
  CHECK(gpu_of_device(folder.path() + "/configs", "NVIDIA H200")->name == "h200-sxm5-141gb");
}
