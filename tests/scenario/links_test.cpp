// Links inside a server have the numbers of their own kind, or none.
#include <doctest/doctest.h>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"
#include "topologies/group_placement.h"

using namespace trainyard;

namespace {

const char* const kOverPcie = R"({
  "version": 1, "name": "pcie",
  "model": { "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200 },
  "cluster": { "nodes": 1, "node": {
    "gpu": {"memory": "80GiB", "memory_bandwidth": "2TB/s", "peak": {"bf16": "300TFLOP/s"}},
    "gpus": 4, "intra": {"kind": "pcie"}, "nics": 4, "nic": {"bandwidth": "200Gbps"} } },
  "training": {
    "global_batch": 64, "micro_batch": 1, "sequence_length": 512,
    "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" } }
})";

using Sets = std::vector<std::string>;

std::string said(const Sets& sets) {
  test::Folder folder("links");
  return test::problems(folder.write("s.json", kOverPcie), sets);
}

// Of a ring of all GPUs of the server, in GB/s; one socket.
double ring(const Sets& sets, const char* text = kOverPcie) {
  test::Folder folder("links");
  const Scenario s = load_scenario(folder.write("s.json", text), sets).base;
  std::vector<int> gpus;
  for (int g = 0; g < s.cluster.server.gpus; ++g)
    gpus.push_back(g);
  return ring_bandwidth(s.cluster.server, gpus).count() / 1e9;
}

}  // namespace

TEST_CASE("PCIe between GPUs never has the speed of the NICs: it is stated, or demanded") {
  for (const char* kind : {"pcie", "none"}) {
    CAPTURE(kind);
    const std::string set = std::string("cluster.node.intra.kind=") + kind;
    CHECK(said({set}).find("/cluster/node/intra/bandwidth_per_gpu: is required and missing") !=
          std::string::npos);
    for (const char* nic : {"cluster.node.nic.bandwidth=100Gbps", "cluster.node.nics=1"}) {
      const double half = std::string(kind) == "none" ? 0.5 : 1;
      CHECK(ring({set, nic, "cluster.node.gpu.pcie_bandwidth=25GB/s"}) == 25 * half);
      CHECK(ring({set, nic, "cluster.node.host.pcie_bandwidth=20GB/s",
                  "cluster.node.gpu.pcie_bandwidth=25GB/s"}) == 20 * half);
      CHECK(ring({set, nic, "cluster.node.intra.bandwidth_per_gpu=10GB/s",
                  "cluster.node.host.pcie_bandwidth=20GB/s"}) == 10 * half);
    }
  }
}

TEST_CASE("what joins several GPUs has a bandwidth, and is told which") {
  const std::string key = "/cluster/node/intra/bandwidth_per_gpu: is required and missing; ";
  CHECK(said({R"(cluster.node.intra={"kind": "nvswitch"})"})
            .find(key + "state what a GPU sends into the switch") != std::string::npos);
  CHECK(said({R"(cluster.node.intra={"kind": "nvlink_mesh"})"})
            .find(key + "state what a link carries per direction") != std::string::npos);
}

TEST_CASE("a latency is at most a second, as the reference says") {
  CHECK(said({"cluster.node.intra.latency=10s", "cluster.node.gpu.pcie_bandwidth=25GB/s"})
            .find("/cluster/node/intra/latency: expected at least 0 and at most 1s, got \"10s\"") !=
        std::string::npos);
}

TEST_CASE("presets of GPUs say what their slot carries") {
  for (const auto& [gpu, slot] : std::vector<std::pair<std::string, double>>{
           {"v100-sxm2-16gb", 12}, {"a100-sxm4-80gb", 25}, {"h100-sxm5-80gb", 50}})
    CHECK(ring({"training.precision.compute=fp16", "cluster.node.gpu=null",
                "cluster.node.gpu=" + gpu}) == slot);
}

TEST_CASE("a kind of links beside a preset of another takes no number of the preset") {
  CHECK(ring({"cluster.node.intra.kind=pcie", "cluster.node.host.sockets=1",
              "cluster.node.host.pcie_bandwidth=15GB/s"},
             test::kSmall) == 15);
  CHECK(ring({"cluster.node.intra.bandwidth_per_gpu=100GB/s"}, test::kSmall) == 100);
}

TEST_CASE("NVLinks that do not join the GPUs are not completed by PCIe that nobody states") {
  const Sets pairs = {"cluster.node.intra.kind=nvlink_mesh",
                      "cluster.node.intra.bandwidth_per_gpu=20GB/s",
                      R"(cluster.node.intra.mesh=[{"a": 0, "b": 1}, {"a": 2, "b": 3}])"};
  CHECK(said(pairs).find("/cluster/node/intra/mesh: no link joins GPUs 0, 1 with GPUs 2, 3") !=
        std::string::npos);
  Sets stated = pairs;
  stated.push_back("cluster.node.host.pcie_bandwidth=12GB/s");
  CHECK(said(stated) == "");
}

TEST_CASE("NICs that nobody counts, and PCIe as wide as NVLink, are said") {
  CHECK(said({"cluster.node.nics=null", "cluster.node.gpu.pcie_bandwidth=25GB/s"})
            .find("/cluster/node/nic: a server has none unless nics says how many") !=
        std::string::npos);
  test::Folder folder("links");
  const std::string path = folder.write("s.json", kOverPcie);
  const Sets wide = {"cluster.node.intra.bandwidth_per_gpu=300GB/s"};
  CHECK(test::warnings(load_scenario(path, wide).base).find("300GB/s is implausible") !=
        std::string::npos);
}
