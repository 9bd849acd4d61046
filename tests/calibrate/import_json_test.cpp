// Imports of what is not a table: JSON of nccl-tests and nvbandwidth, and the matrix of nvidia-smi.
#include <doctest/doctest.h>

#include <string>

#include "calibrate/import/import.h"
#include "tests/calibrate/imported.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

using test::messages;

// Samples without the blanks of JSON.
std::string compact(const Imported& imported) {
  std::string text = samples_text(imported.samples);
  for (const char* mark : {", ", ": "})
    for (std::size_t at = 0; (at = text.find(mark)) != std::string::npos;)
      text.erase(at + 1, 1);
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

ImportOptions of_gpu(const std::string& name) {
  ImportOptions given;
  given.gpu = name;
  return given;
}

// Written by hand after src/util.cu of nccl-tests. 1 MiB in 30 us is 34.95 GB/s, and 17.48 on the
// bus of a reduce-scatter of two.
const std::string kNcclJson = R"({"version":1,"start_time":"2025-07-01 12:00:00",
"args":["./build/reduce_scatter_perf","-b","1M"],"env":["A=1"],"nccl_version":22705,
"config":{"nthreads":1,"ngpus":2},
"devices":[{"rank":0,"group":0,"hostname":"a","device":0,"device_hex":"17","device_info":"GPU"},
{"rank":1,"group":0,"hostname":"a","device":1,"device_hex":"18","device_info":"GPU"}],
"results":[
{"size":1048576,"count":131072,"type":"float","redop":"sum","root":"    -1",
"out_of_place":{"time":30.000000,"alg_bw":34.952533,"bus_bw":17.476267,"nwrong":0.000000},
"in_place":{"time":31.000000,"alg_bw":33.825032,"bus_bw":16.912516,"nwrong":null},
"actual_iterations":20,"experiment_name":"x"}],"end_time":"2025-07-01 12:01:00"})";

TEST_CASE("The JSON of nccl-tests gives the same samples as its table") {
  const Imported imported = import_nccl_tests(kNcclJson, "log", {});
  CHECK(messages(imported) == "");
  CHECK(compact(imported) ==
        R"({"kind":"machine","probe":"nccl-tests","gpus":[{"name":"GPU"},{"name":"GPU"}],)"
        R"("nccl":"2.27.5"})"
        "\n"
        R"({"kind":"collective","collective":"reduce-scatter","ranks":2,"servers":1,)"
        R"("bytes":1048576,"backend":"nccl","time_us":30})"
        "\n");
}

TEST_CASE("Mistakes in the JSON of nccl-tests are named by their line") {
  const auto complaint = [](const std::string& from, const std::string& to) {
    return messages(import_nccl_tests(replaced(kNcclJson, from, to), "log", {}));
  };
  CHECK(complaint("30.000000", "\"nan\"") ==
        "log:8:1: error: \"time\" of out_of_place is no measurement\n");
  CHECK(complaint("\"nwrong\":0.0", "\"nwrong\":2.0") ==
        "log:7:1: warning: left out: 2 wrong values\n");
  CHECK(complaint("\"time\"", "\"cpu_time\"").find("--report_cputime") != std::string::npos);
  CHECK(complaint("\"results\"", "\"result\"").find("no list \"results\"") != std::string::npos);
  CHECK(complaint("34.95", "44.95").find("log:7:1: error: algbw is 44.952533") == 0);
  CHECK(complaint("1048576", "-1").find("no size") != std::string::npos);
  CHECK(complaint("\"end_time\"", "").find("error") != std::string::npos);
}

// Written by hand after json_output.cpp of nvbandwidth. 512 MiB at 53.6870912 GB/s take 10 ms.
const std::string kBandwidth =
    R"json({"nvbandwidth":{"version":"v0.8","Driver Version":"550.54",
"testcases":[
{"name":"host_to_device_memcpy_ce","status":"Passed",
"bandwidth_description":"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
"bandwidth_matrix":[["53.6870912","26.8435456"]],"sum":80.5},
{"name":"device_to_device_memcpy_read_ce","status":"Passed",
"bandwidth_description":"memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
"bandwidth_matrix":[["N/A","536.870912"],["268.435456","N/A"]]},
{"name":"device_local_copy","status":"Waived"}]}})json";

TEST_CASE("A read of nvbandwidth moves data to the row's device, whatever its arrow says") {
  const Imported imported = import_nvbandwidth(kBandwidth, "log", of_gpu("GPU"));
  CHECK(
      messages(imported) ==
      "log:9:1: warning: testcase 'device_local_copy' is left out: only single copies by the copy "
      "engines become samples\n");
  CHECK(
      compact(imported) ==
      R"({"kind":"machine","probe":"nvbandwidth v0.8","gpus":[{"name":"GPU"},{"name":"GPU"}],)"
      R"("driver":"550.54"})"
      "\n"
      R"({"kind":"copy","direction":"h2d","pinned":true,"gpu":0,"bytes":536870912,"time_us":10000})"
      "\n"
      R"({"kind":"copy","direction":"h2d","pinned":true,"gpu":1,"bytes":536870912,"time_us":20000})"
      "\n"
      R"({"kind":"p2p","from":1,"to":0,"access":"peer","mode":"alone","bytes":536870912,)"
      R"("time_us":1000})"
      "\n"
      R"({"kind":"p2p","from":0,"to":1,"access":"peer","mode":"alone","bytes":536870912,)"
      R"("time_us":2000})"
      "\n");
}

TEST_CASE("Mistakes in a file of nvbandwidth are named by their line") {
  const auto complaint = [](const std::string& from, const std::string& to) {
    return messages(import_nvbandwidth(replaced(kBandwidth, from, to), "log", of_gpu("GPU")));
  };
  CHECK(complaint("\"53.6870912\"", "\"nan\"").find("log:5:1: error: 'nan' is no bandwidth") == 0);
  CHECK(complaint("\"53.6870912\"", "0").find("no bandwidth") != std::string::npos);
  // The time that it would take is beyond every number.
  CHECK(complaint("\"53.6870912\"", "\"4.9e-324\"").find("no bandwidth") != std::string::npos);
  CHECK(complaint("],[\"268.435456\",\"N/A\"]", "]").find("not square") != std::string::npos);
  CHECK(complaint("[[\"53.6870912\",", "[[").find("devices") != std::string::npos);
  CHECK(complaint("\"Passed\"", "\"Error\"").find("log:3:1: warning") == 0);
  CHECK(complaint("(GB/s)", "(GiB/s)").find("GB/s") != std::string::npos);
  CHECK(complaint("\"testcases\"", "\"tests\"").find("testcases") != std::string::npos);
  CHECK(complaint("}]}}", "").find("error") != std::string::npos);
  CHECK(messages(import_nvbandwidth(kBandwidth, "log", {})).find("--gpu") != std::string::npos);
}

// Written by hand in the layout of driver 535: tabs, a NIC, and a legend.
const std::string kTopology =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tPXB\t0-31\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tPIX\tSYS\t32-63\t1\t\tN/A\n"
    "GPU2\tSYS\tPIX\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\tSYS\t X \n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n";

TEST_CASE("The matrix of nvidia-smi becomes the links of a machine") {
  const Imported imported = import_smi_topo(kTopology, "topo", of_gpu("GPU"));
  CHECK(messages(imported) == "");
  CHECK(compact(imported) ==
        R"({"kind":"machine","probe":"nvidia-smi topo -m",)"
        R"("gpus":[{"name":"GPU","numa":0,"pcie_switch":0},)"
        R"({"name":"GPU","numa":1,"pcie_switch":1},{"name":"GPU","numa":1,"pcie_switch":1}],)"
        R"("nvlinks":[[0,12,0],[12,0,0],[0,0,0]],)"
        R"("links":[["X","NV12","SYS"],["NV12","X","PIX"],["SYS","PIX","X"]],)"
        R"("nics":[{"name":"mlx5_0","gpus":[0,1,2]}],"sockets":2})"
        "\n");
}

TEST_CASE("Mistakes in a matrix of nvidia-smi are named by their line") {
  const auto complaint = [](const std::string& from, const std::string& to) {
    return messages(import_smi_topo(replaced(kTopology, from, to), "topo", of_gpu("GPU")));
  };
  CHECK(complaint("NV12\tSYS", "NV4\tSYS")
            .find("topo:1:1: error: GPU1 is connected to GPU0 by NV12") == 0);
  CHECK(complaint("NV12\tSYS", "NVX\tSYS").find("topo:2:1: error: 'NVX' is no connection") == 0);
  CHECK(complaint("GPU1\tNV12\t X ", "GPU1\tNV12\tSYS").find("X must stand") != std::string::npos);
  CHECK(complaint("GPU1\tNV12", "GPU5\tNV12").find("topo:3:1: error: row GPU1 was expected") == 0);
  CHECK(complaint("GPU2\tSYS\tPIX", "GPU9").find("error") != std::string::npos);
  CHECK(complaint("GPU0\tGPU1", "GPU0").find("error") != std::string::npos);
  CHECK(messages(import_smi_topo("nothing\n", "topo", of_gpu("GPU"))).find("no matrix") !=
        std::string::npos);
  CHECK(messages(import_smi_topo(kTopology, "topo", {})).find("--gpu") != std::string::npos);
}

TEST_CASE("A matrix that is cut off anywhere is refused, unless only the legend is missing") {
  const std::string whole = samples_text(import_smi_topo(kTopology, "topo", of_gpu("GPU")).samples);
  for (std::size_t size = 0; size < kTopology.size(); ++size) {
    const Imported imported =
        import_smi_topo(std::string_view(kTopology).substr(0, size), "topo", of_gpu("GPU"));
    if (!imported.ok()) continue;
    CAPTURE(size);
    const std::string text = samples_text(imported.samples);
    // The NUMA node of the last GPU stands behind the matrix, and the NIC's name behind that.
    REQUIRE((text == whole || size < kTopology.size() - 1));
    REQUIRE(imported.samples.front().find("links")->items.size() == 3);
  }
}

}  // namespace
}  // namespace trainyard
