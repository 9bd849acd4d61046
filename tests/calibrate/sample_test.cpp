#include "calibrate/probe/host/sample.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "calibrate/probe/host/host.h"
#include "tests/scenario/temporary.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::probe;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a sample is one line of JSON, whatever is in its words") {
  const std::string line = probe::Sample("gemm")
                               .text("dtype", "b\"f\\16\n\x01")
                               .number("m", std::int64_t{4096})
                               .number("time_us", 0.1)
                               .flag("causal", false)
                               .json("list", "[1,2]")
                               .line();
  CHECK(line ==
        "{\"kind\":\"gemm\",\"dtype\":\"b\\\"f\\\\16\\u000a\\u0001\",\"m\":4096,\"time_us\":0.1,"
        "\"causal\":false,\"list\":[1,2]}\n");
}

TEST_CASE("numbers are written shortest and read back equal, those without value are left out") {
  for (const double value : {0.1, 1.0 / 3, 1e-9, 123456789.125, 5e-324, 1.7976931348623157e308,
                             4.35, 2e22, 16777217.0, 0.30000000000000004}) {
    CAPTURE(value);
    CHECK(std::strtod(json_number(value).c_str(), nullptr) == value);
  }
  CHECK(json_number(0.1) == "0.1");
  CHECK(json_number(2.5) == "2.5");
  CHECK(json_number(1980) == "1980");
  CHECK(probe::Sample("a").number("x", std::numeric_limits<double>::infinity()).line() ==
        "{\"kind\":\"a\"}\n");
}

TEST_CASE("the median and the quartiles of an odd and an even number of times") {
  const Timing odd = summarize({5, 1, 3, 2, 4});
  CHECK(odd.median_us == 3);
  CHECK(odd.spread == about((4.0 - 2.0) / 3));
  CHECK(odd.repeats == 5);
  CHECK(summarize({4, 1, 3, 2}).median_us == 2.5);
  CHECK(summarize({7}).spread == 0);
}

TEST_CASE("samples are appended, and a line that was cut off is removed first") {
  const test::Folder folder("sample-file");
  const std::string path = folder.write("s.jsonl", "{\"kind\":\"one\"}\n{\"kind\":\"cut o");
  {
    SampleFile file(path);
    file.write(probe::Sample("two"));
    CHECK(file.written() == 1);
    // On the disk at once: an interrupt keeps it.
    CHECK(text_of(path) == "{\"kind\":\"one\"}\n{\"kind\":\"two\"}\n");
  }
  SampleFile again(path);
  again.write(probe::Sample("three"));
  CHECK(text_of(path) == "{\"kind\":\"one\"}\n{\"kind\":\"two\"}\n{\"kind\":\"three\"}\n");
  CHECK_THROWS_AS(SampleFile("/proc/no/such/file"), std::runtime_error);
  CHECK_THROWS_AS(SampleFile(folder.path()), std::runtime_error);
  CHECK_THROWS_AS(SampleFile("/dev/full").write(probe::Sample("x")), std::runtime_error);
}

TEST_CASE("the way between two PCI devices is told as nvidia-smi tells it") {
  const test::Folder folder("sysfs");
  namespace fs = std::filesystem;
  const auto device = [&](const std::string& way, const char* numa) {
    const std::string name = fs::path(way).filename();
    folder.write("sys/devices/" + way + "/numa_node", numa);
    folder.write("sys/devices/" + way + "/max_link_speed", "16.0 GT/s PCIe\n");
    folder.write("sys/devices/" + way + "/current_link_width", "16\n");
    fs::create_directories(folder.path() + "/sys/bus/pci/devices");
    fs::create_directory_symlink(folder.path() + "/sys/devices/" + way,
                                 folder.path() + "/sys/bus/pci/devices/" + name);
    return name;
  };
  // Root port, upstream port of a switch, its downstream ports, GPUs.
  const std::string a =
      device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0", "0");
  const std::string b =
      device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0", "0");
  const std::string c = device("pci0000:10/0000:10:02.0/0000:18:00.0", "0");
  const std::string d = device("pci0000:20/0000:20:01.0/0000:21:00.0", "0");
  const std::string e = device("pci0000:80/0000:80:01.0/0000:81:00.0", "1");
  const std::string root = folder.path();
  CHECK(pci_path(a, b, root) == "PIX");
  CHECK(pci_path(a, c, root) == "PHB");
  CHECK(pci_path(a, d, root) == "NODE");
  CHECK(pci_path(a, e, root) == "SYS");
  CHECK(pci_path(e, a, root) == "SYS");
  CHECK(pci_path(a, "0000:99:00.0", root).empty());
  CHECK(numa_of(e, root) == 1);
  const auto pcie = pcie_of(a, root);
  REQUIRE(pcie.has_value());
  CHECK(pcie->generation == 4);
  CHECK(pcie->width == 16);
  CHECK_FALSE(pcie_of("0000:99:00.0", root).has_value());
}
