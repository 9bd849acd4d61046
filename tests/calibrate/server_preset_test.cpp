#include "calibrate/fit/samples/server_preset.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/scenario/temporary.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::string gpu_line(const std::string& name, const std::string& rest) {
  return R"({"name":")" + name + R"(",)" + rest + "}";
}

const char* const kA100 =
    R"("compute_capability":"8.0","multiprocessors":108,"memory_bytes":85899345920,)"
    R"("l2_bytes":41943040,"memory_bus_bits":5120,"memory_clock_mhz":1593,"clock_mhz":1410,)"
    R"("pcie":{"generation":4,"width":16})";

// A machine of `count` GPUs, each linked to each other by `links` NVLinks.
std::string machine_line(const std::string& gpu, int count, int links) {
  std::string gpus, rows;
  for (int i = 0; i < count; ++i) {
    gpus += (i > 0 ? "," : "") + gpu;
    rows += i > 0 ? ",[" : "[";
    for (int j = 0; j < count; ++j)
      rows += (j > 0 ? "," : "") + std::to_string(i == j ? 0 : links);
    rows += "]";
  }
  return R"({"kind":"machine","gpus":[)" + gpus + R"(],"nvlinks":[)" + rows +
         R"(],"sockets":2,"date":"2025-05-01T00:00:00Z"})" + "\n";
}

// A scenario whose cluster is one server of that preset.
Scenario load(const ServerPreset& preset) {
  const test::Folder folder("server-preset");
  folder.write("configs/servers/" + preset.name + ".json", server_preset_json(preset));
  folder.write("configs/models/tiny.json", R"({"kind": "transformer", "layers": 2, "hidden": 64,
    "heads": 4, "vocab": 100})");
  const std::string path = folder.write("configs/s.json", R"({"version": 1, "name": "s",
    "model": {"preset": "tiny"},
    "cluster": {"nodes": 1, "node": {"preset": ")" + preset.name +
                                                              R"("}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence_length": 32,
      "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}},
    "parallelism": {"dp": )" + std::to_string(preset.gpus) + "}}");
  CHECK(test::problems(path) == "");
  return load_scenario(path).base;
}

}  // namespace

TEST_CASE("eight GPUs behind NVSwitch become a server that a scenario can name") {
  const auto machine =
      measured_machine(machine_line(gpu_line("NVIDIA A100-SXM4-80GB", kA100), 8, 12));
  REQUIRE(machine.has_value());
  const ServerSpec server = load(server_preset(*machine, "mine", "a100-sxm4-80gb")).cluster.server;
  CHECK(server.gpus == 8);
  CHECK(server.gpu.name == "a100-sxm4-80gb");
  CHECK(server.intra == IntraKind::nvswitch);
  CHECK(server.intra_bandwidth.count() == 300e9);  // DGX A100: 600 GB/s in both directions
  CHECK(server.sockets == 2);
  CHECK(server.pcie_bandwidth.count() == 24e9);
}

TEST_CASE("four GPUs with four links to each other are a mesh, not a switch") {
  const auto machine =
      measured_machine(machine_line(gpu_line("NVIDIA A100-SXM4-40GB", kA100), 4, 4));
  const ServerSpec server = load(server_preset(*machine, "m", "a100-sxm4-40gb")).cluster.server;
  CHECK(server.intra == IntraKind::nvlink_mesh);
  CHECK(server.intra_bandwidth.count() == 25e9);
  REQUIRE(server.mesh.size() == 6);
  for (const NvlinkPair& pair : server.mesh)
    CHECK(pair.links == 4);
}

TEST_CASE("GPUs without NVLink meet on PCIe, and one GPU has no links at all") {
  const std::string gpu = gpu_line("NVIDIA A100-PCIE-40GB", kA100);
  const ServerSpec two =
      load(server_preset(*measured_machine(machine_line(gpu, 2, 0)), "p", "")).cluster.server;
  CHECK(two.intra == IntraKind::pcie);
  CHECK(two.intra_bandwidth.count() == 24e9);
  const ServerSpec one =
      load(server_preset(*measured_machine(machine_line(gpu, 1, 0)), "o", "")).cluster.server;
  CHECK(one.intra == IntraKind::none);
}

TEST_CASE("a GPU that no preset describes is described by its architecture") {
  // The device's own numbers of an A100 80 GB and its datasheet: 312, 156 and 19.5 TFLOP/s, 2039
  // GB/s.
  const auto machine = measured_machine(machine_line(gpu_line("NVIDIA A100X", kA100), 1, 0));
  const GpuSpec gpu = load(server_preset(*machine, "own", "")).cluster.server.gpu;
  CHECK(gpu.name == "nvidia-a100x");
  CHECK(gpu.bf16.count() == about(312e12).within(0.002));
  CHECK(gpu.tf32.count() == about(156e12).within(0.002));
  CHECK(gpu.fp32.count() == about(19.5e12).within(0.002));
  CHECK(gpu.fp8.count() == 0);
  CHECK(gpu.memory_bandwidth.count() == about(2039e9).within(0.001));
  CHECK(gpu.memory.count() == std::int64_t{80} << 30);
  CHECK(gpu.l2.count() == std::int64_t{40} << 20);
  CHECK(gpu.multiprocessors == 108);
}

TEST_CASE("architectures agree with datasheets") {
  struct Known {
    const char* name;
    int major, minor, multiprocessors;
    double boost_mhz, bf16, tf32, fp32, fp8;
  };
  // At the boost clock that the datasheet counts with; H100's counts fp32 at 1980 MHz.
  for (const Known& known :
       {Known{"NVIDIA H100 80GB HBM3", 9, 0, 132, 1830, 989e12, 494.5e12, 67e12 * 1830 / 1980,
              1979e12},
        Known{"NVIDIA GeForce RTX 4090", 8, 9, 128, 2520, 165.2e12, 82.6e12, 82.6e12, 330.3e12},
        Known{"NVIDIA L40S", 8, 9, 142, 2520, 362e12, 183e12, 91.6e12, 733e12},
        Known{"NVIDIA GeForce RTX 3090", 8, 6, 82, 1695, 71e12, 35.6e12, 35.6e12, 0}}) {
    CAPTURE(known.name);
    MeasuredGpu gpu;
    gpu.name = known.name;
    gpu.major = known.major;
    gpu.minor = known.minor;
    gpu.multiprocessors = known.multiprocessors;
    gpu.memory_bytes = 24e9;
    gpu.memory_bus_bits = 384;
    gpu.memory_clock_mhz = 10000;
    gpu.clock_mhz = known.boost_mhz;
    const std::optional<GpuPreset> preset = gpu_preset(gpu);
    REQUIRE(preset.has_value());
    for (const GpuPreset::Peak& peak : preset->peaks) {
      CAPTURE(peak.dtype);
      const double expected = peak.dtype == "fp32"   ? known.fp32
                              : peak.dtype == "tf32" ? known.tf32
                              : peak.dtype == "fp8"  ? known.fp8
                                                     : known.bf16;
      CHECK(peak.rate.count() == about(expected).within(0.02));
    }
  }
}

TEST_CASE("an architecture that nobody knows has no preset") {
  MeasuredGpu gpu;
  gpu.name = "NVIDIA Z1";
  gpu.major = 99;
  gpu.multiprocessors = 100;
  gpu.memory_bytes = gpu.memory_bus_bits = gpu.memory_clock_mhz = gpu.clock_mhz = 1000;
  CHECK_FALSE(gpu_preset(gpu).has_value());
}

TEST_CASE("the last whole machine line counts, other lines and broken ones do not matter") {
  const std::string text = machine_line(gpu_line("First", kA100), 1, 0) +
                           R"({"kind":"launch","what":"machine","time_us":1})" + "\n" +
                           machine_line(gpu_line("Second", kA100), 2, 0) +
                           R"({"kind":"machine","gpus":[{"na)";
  const auto machine = measured_machine(text);
  REQUIRE(machine.has_value());
  CHECK(machine->gpus.size() == 2);
  CHECK(machine->gpus.front().name == "Second");
  CHECK_FALSE(measured_machine("").has_value());
  CHECK_FALSE(measured_machine(R"({"kind":"machine"})").has_value());
}

namespace {

MeasuredMachine described(int gpus, int sockets) {
  MeasuredMachine machine;
  machine.sockets = sockets;
  machine.gpus.assign(static_cast<std::size_t>(gpus), {});
  for (MeasuredGpu& gpu : machine.gpus) {
    gpu.name = "10de:20b2";
    gpu.major = 8;
  }
  return machine;
}

DescribedServer server_of(MeasuredMachine machine) {
  DescribedServer server;
  server.machine = std::move(machine);
  server.origin = "Described by topo.xml";
  return server;
}

}  // namespace

TEST_CASE("a described server is one that a scenario can name: switches, NUMA nodes, NICs, rails") {
  MeasuredMachine machine = described(8, 4);
  for (std::size_t g = 0; g < 8; ++g) {
    machine.gpus[g].nvswitch_links = 12;
    machine.gpus[g].pcie_generation = 4;
    machine.gpus[g].pcie_width = 16;
    machine.gpus[g].pcie_switch = static_cast<int>(g / 2);
  }
  machine.nics.assign(8, {200000, 2});
  machine.nics.push_back({100000, 0});  // no GPU is nearest to it
  CHECK(says_links(machine) == false);
  machine.nvlinks.assign(8, std::vector<int>(8, 0));
  CHECK(says_links(machine));
  CHECK(count_nics(machine).used == 8);
  const ServerPreset preset = described_server(server_of(machine), "mine", "a100-sxm4-80gb");
  CHECK(preset.source.find("Described by topo.xml. Assumed: latencies") == 0);
  CHECK(preset.source.find("PCIe") == std::string::npos);
  const ServerSpec server = load(preset).cluster.server;
  CHECK(server.intra == IntraKind::nvswitch);
  CHECK(server.intra_bandwidth.count() == 300e9);  // 12 x 25 GB/s
  CHECK(server.sockets == 4);
  CHECK(server.gpus_per_pcie_switch == 2);
  CHECK(server.pcie_bandwidth.count() == 24e9);
  CHECK(server.nics == 8);
  CHECK(server.nic_bandwidth.count() == 25e9);
  CHECK(server.rail_per_gpu);
}

TEST_CASE("what a description leaves open is given or assumed, and its source says which") {
  DescribedServer server = server_of(described(4, 2));
  server.machine.nics.assign(1, {0, 4});
  CHECK(count_nics(server.machine).with_speed == 0);
  server.links = ServerPreset::Links::nvswitch;
  server.nic_bandwidth = BytesPerSecond(50e9);
  const ServerPreset switched = described_server(server, "s", "a100-sxm4-80gb");
  CHECK(switched.source.find("Given: how the GPUs are joined; speed of a NIC. ") !=
        std::string::npos);
  CHECK(switched.source.find("PCIe 4.0 x16, as the GPU has it") != std::string::npos);
  CHECK(load(switched).cluster.server.intra_bandwidth.count() == 300e9);
  CHECK(load(switched).cluster.server.nic_bandwidth.count() == 50e9);
  server.gpu_pcie_bandwidth = BytesPerSecond(25e9);
  CHECK(described_server(server, "g", "a100-sxm4-80gb").pcie_bandwidth.count() == 25e9);
  server.links = ServerPreset::Links::pcie;
  server.pcie_bandwidth = BytesPerSecond(20e9);
  const ServerSpec joined = load(described_server(server, "p", "a100-sxm4-80gb")).cluster.server;
  CHECK(joined.intra == IntraKind::pcie);
  CHECK(joined.intra_bandwidth.count() == 20e9);
}

TEST_CASE(
    "GPUs without copies from peer to peer meet in the host's memory, unless told otherwise") {
  DescribedServer server = server_of(described(4, 2));
  server.has_peers = false;
  const ServerPreset preset = described_server(server, "g", "rtx-3090");
  CHECK(load(preset).cluster.server.intra == IntraKind::none);
  CHECK(preset.source.find("through the host's memory") != std::string::npos);
  server.links = ServerPreset::Links::pcie;
  CHECK(load(described_server(server, "g", "rtx-3090")).cluster.server.intra == IntraKind::pcie);
}

TEST_CASE("pairs of NVLinks become a mesh that PCIe joins") {
  DescribedServer server = server_of(described(4, 2));
  server.machine.nvlinks = {{0, 3, 0, 0}, {3, 0, 0, 0}, {0, 0, 0, 3}, {0, 0, 3, 0}};
  const ServerSpec spec = load(described_server(server, "m", "a100-sxm4-80gb")).cluster.server;
  CHECK(spec.intra == IntraKind::nvlink_mesh);
  REQUIRE(spec.mesh.size() == 2);
  CHECK(spec.mesh[1].a == 2);
  CHECK(spec.mesh[1].links == 3);
  CHECK(spec.pcie_bandwidth.count() == 24e9);
}

TEST_CASE("a bridge over boards of GA102 carries 112.5 GB/s in both directions") {
  DescribedServer server = server_of(described(2, 1));
  for (MeasuredGpu& gpu : server.machine.gpus)
    gpu.minor = 6;
  server.machine.nvlinks = {{0, 4}, {4, 0}};
  const ServerPreset preset = described_server(server, "b", "a100-sxm4-80gb");
  CHECK(preset.bandwidth.count() * 4 == 56.25e9);
}

TEST_CASE("a machine line's NICs, switches and NVLinks into switches are read") {
  const auto machine = measured_machine(
      R"({"kind":"machine","gpus":[{"name":"a","pcie_switch":0,"nvswitch_links":18},)"
      R"({"name":"a","pcie_switch":3}],"nics":[{"name":"n","megabits":400000,"gpus":[0,1]},)"
      R"({"name":"o","gpus":[]},7]})"
      "\n");
  REQUIRE(machine.has_value());
  CHECK(machine->gpus[0].nvswitch_links == 18);
  CHECK(machine->gpus[1].pcie_switch == 3);
  REQUIRE(machine->nics.size() == 2);
  CHECK(machine->nics[0].megabits == 400000);
  CHECK(machine->nics[0].gpus == 2);
  CHECK(machine->nics[1].gpus == 0);
}
