// Descriptions of one server: the matrix of nvidia-smi in its dialects, and NCCL's XML.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "calibrate/import/import.h"
#include "sim/base/random.h"
#include "tests/calibrate/imported.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

using test::messages;

ImportOptions of_gpu(const std::string& name) {
  ImportOptions given;
  given.gpu = name;
  given.for_preset = true;
  return given;
}

Imported smi(const std::string& text) {
  return import_smi_topo(text, "topo", of_gpu("GPU"));
}

Imported nccl(const std::string& text) {
  return import_nccl_topo(text, "topo", of_gpu("GPU"));
}

// The machine line; fails if there is none.
json::Value machine(const Imported& imported) {
  CAPTURE(messages(imported));
  REQUIRE(imported.samples.size() == 1);
  return imported.samples.front();
}

// A member as text: "[0,1]", "2"; empty if it is not said.
std::string text_of(const json::Value& object, const std::string& key) {
  const json::Value* value = object.find(key);
  std::string text = value != nullptr ? json::to_text(*value, -1) : "";
  for (std::size_t at = 0; (at = text.find(' ')) != std::string::npos;)
    text.erase(at, 1);
  return text;
}

std::vector<std::string> of_gpus(const json::Value& line, const std::string& key) {
  std::vector<std::string> texts;
  for (const json::Value& gpu : line.find("gpus")->items)
    texts.push_back(text_of(gpu, key));
  return texts;
}

std::vector<std::string> nearest_gpus(const json::Value& line) {
  std::vector<std::string> texts;
  for (const json::Value& nic : line.find("nics")->items)
    texts.push_back(text_of(nic, "gpus"));
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("Words of older drivers mean what those of today mean") {
  const json::Value line =
      machine(smi("        GPU0    GPU1    GPU2    GPU3    mlx4_0  CPU Affinity\n"
                  "GPU0     X      PSB     SOC     SOC     SOC     0-3\n"
                  "GPU1    PSB      X      SOC     SOC     SOC     0-3\n"
                  "GPU2    SOC     SOC      X      PIX     PHB     4-7\n"
                  "GPU3    SOC     SOC     PIX      X      PHB     4-7\n"
                  "mlx4_0  SOC     SOC     PHB     PHB      X \n"));
  CHECK(text_of(line, "links") ==
        R"([["X","PIX","SYS","SYS"],["PIX","X","SYS","SYS"],["SYS","SYS","X","PIX"],)"
        R"(["SYS","SYS","PIX","X"]])");
  CHECK(text_of(line, "sockets") == "2");  // no NUMA column: what SYS keeps apart
  CHECK(of_gpus(line, "pcie_switch") == Texts{"0", "0", "2", "2"});
  CHECK(nearest_gpus(line) == Texts{"[0,1,2,3]"});
}

TEST_CASE("A NUMA node stands in its column beside an empty CPU affinity") {
  const std::string head = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  for (const std::string& text :
       {head + "GPU0\t X \tNV18\t44-51,148-155\t0\t\tN/A\nGPU1\tNV18\t X \t\t1\t\tN/A\n",
        head + "GPU0\t X \tNV18\t5\t0\t\tN/A\nGPU1\tNV18\t X \t\t1\t\tN/A\n",
        // Tabs that were expanded: the header's labels are wider than a column.
        std::string("        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                    "GPU0     X      NV18    0-31    0               N/A\n"
                    "GPU1    NV18     X              1               N/A\n"),
        std::string("        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
                    "GPU0     X      NV18    7               0\n"
                    "GPU1    NV18     X                      1\n")}) {
    CAPTURE(text);
    const json::Value line = machine(smi(text));
    CHECK(of_gpus(line, "numa") == Texts{"0", "1"});
    CHECK(text_of(line, "sockets") == "2");
  }
  const json::Value unsaid =
      machine(smi("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
                  "GPU0\t X \tNV2\t0-23\tN/A\nGPU1\tNV2\t X \t0-23\tN/A\n"));
  CHECK(of_gpus(unsaid, "numa") == Texts{"", ""});
  CHECK(text_of(unsaid, "sockets") == "");  // NVLink hides it
}

TEST_CASE("A matrix of topo -p2p is not taken for one of topo -m") {
  for (const std::string cell : {"OK", "CNS", "NS", "TNS"}) {
    const std::string row = "  GPU0   X   " + cell + "\n  GPU1  " + cell + "   X\n";
    CHECK(messages(smi("        GPU0    GPU1\n" + row)) ==
          "topo:2:1: error: this is a matrix of nvidia-smi topo -p2p: which GPUs may reach each "
          "other, not how; write it with nvidia-smi topo -m\n");
  }
}

TEST_CASE("A NIC belongs to the GPUs that have no nearer one") {
  const Imported imported =
      smi("\tGPU0\tGPU1\tNIC0\trdmap16s27\tNIC2\tCPU Affinity\n"
          "GPU0\t X \tNV12\tPXB\tNODE\tSYS\t0-7\nGPU1\tNV12\t X \tSYS\tPXB\tSYS\t8-15\n"
          "NIC0\tPXB\tSYS\t X \tNODE\tSYS\n\nNIC Legend:\n\n  NIC0: mlx5_4\n");
  CHECK(nearest_gpus(machine(imported)) == Texts{"[0]", "[1]", "[]"});
  CHECK(text_of(machine(imported).find("nics")->items[0], "name") == "\"mlx5_4\"");
  CHECK(messages(imported) ==
        "topo: warning: left out of a preset: 'NIC2', as every GPU has a nearer NIC\n");
}

namespace {

// Two NUMA nodes with one switch each, below it two GPUs and a NIC of two ports.
std::string gpu_element(int number, const std::string& links) {
  return fmt::format(
      R"(<pci busid="0000:{0}{1}:00.0" class="0x030200" vendor="0x10de" device="0x20b2")"
      R"( link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="{2}" sm="80" rank="{2}" gdr="1">)"
      "\n{3}</gpu></pci>\n",
      number / 2 + 1, number % 2 + 1, number, links);
}

std::string nic_element(int number, int speed) {
  return fmt::format(
      R"(<pci busid="0000:{0}f:00.0" class="0x020000" link_speed="16 GT/s" link_width="16">)"
      R"(<nic><net name="mlx5_{1}" dev="{1}" speed="{2}" port="1"/>)"
      R"(<net name="mlx5_{3}" dev="{3}" speed="{2}" port="2"/></nic></pci>)"
      "\n",
      number + 1, 2 * number, speed, 2 * number + 1);
}

std::string xml(const std::vector<std::string>& links, int speed = 100000) {
  std::string text = "<!-- written\n by hand: <pci/> -->\n<system version=\"1\">\n";
  for (int node = 0; node < 2; ++node) {
    text += fmt::format(
        "<cpu numaid=\"{}\" arch=\"x86_64\">\n"
        "<pci busid=\"ffff:ff:0{}.0\" class=\"0x060400\" link_speed=\"16 GT/s\" "
        "link_width=\"16\">\n",
        node, node + 1);
    for (int i = 0; i < 2; ++i)
      text += gpu_element(2 * node + i, links[static_cast<std::size_t>(2 * node + i)]);
    text += nic_element(node, speed) + "</pci>\n</cpu>\n";
  }
  return text + "</system>\n";
}

std::string to_switches(int first, int second) {
  return fmt::format(
      "<nvlink target=\"0000:c4:00.0\" count=\"{}\" tclass=\"0x068000\"/>\n"
      "<nvlink target=\"0000:c5:00.0\" count=\"{}\" tclass=\"0x068000\"/>\n",
      first, second);
}

std::string to_gpu(const std::string& busid, int count) {
  return fmt::format("<nvlink target=\"0000:{}:00.0\" count=\"{}\" tclass=\"0x030200\"/>\n", busid,
                     count);
}

std::string switched() {
  const std::string links = to_switches(5, 7);
  return xml({links, links, links, links});
}

std::string paired() {
  return xml({to_gpu("12", 4), to_gpu("11", 4), to_gpu("22", 4), to_gpu("21", 4)});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("NCCL's tree tells NUMA nodes, switches, NVLinks and the NICs of each GPU") {
  const Imported imported = nccl(switched());
  CHECK(messages(imported) == "");
  const json::Value line = machine(imported);
  CHECK(of_gpus(line, "nvswitch_links") == Texts{"12", "12", "12", "12"});
  CHECK(of_gpus(line, "compute_capability") == Texts(4, "\"8.0\""));
  CHECK(of_gpus(line, "numa") == Texts{"0", "0", "1", "1"});
  CHECK(of_gpus(line, "pcie_switch") == Texts{"0", "0", "1", "1"});
  CHECK(of_gpus(line, "pcie") == Texts(4, R"({"generation":4,"width":16})"));
  CHECK(nearest_gpus(line) == Texts{"[0,1]", "[0,1]", "[2,3]", "[2,3]"});
  CHECK(text_of(line.find("nics")->items[0], "megabits") == "100000");
  CHECK(text_of(line, "sockets") == "2");
  CHECK(text_of(line, "nvlinks") == "[[0,0,0,0],[0,0,0,0],[0,0,0,0],[0,0,0,0]]");
}

TEST_CASE("NVLinks between GPUs are counted in both directions, and one to itself is left out") {
  CHECK(text_of(machine(nccl(paired())), "nvlinks") == "[[0,4,0,0],[4,0,0,0],[0,0,0,4],[0,0,4,0]]");
  CHECK(messages(nccl(xml({to_gpu("12", 4), to_gpu("11", 3), "", ""})))
            .find("topo:9:1: error: GPU 1 has 3 NVLinks to GPU 0, and 4 back") == 0);
  const Imported self = nccl(xml({to_gpu("11", 12), "", "", ""}));
  CHECK(messages(self) ==
        "topo:7:1: warning: left out: an NVLink of a GPU to itself joins nothing\n");
  CHECK(self.ok());
  CHECK(messages(nccl(xml({to_gpu("99", 12), "", "", ""}))).find("to what is no GPU") !=
        std::string::npos);
}

TEST_CASE("GPUs are known by --gpu, or by their number on the bus") {
  CHECK(text_of(machine(import_nccl_topo(switched(), "topo", {})).find("gpus")->items[3], "name") ==
        "\"10de:20b2\"");
  ImportOptions unnamed;
  CHECK(messages(import_nccl_topo(replaced(switched(), " vendor=\"0x10de\" device=\"0x20b2\"", ""),
                                  "topo", unnamed)) ==
        "topo:6:1: error: the file does not name the GPUs; add --gpu NAME\n");
}

TEST_CASE("What NCCL has not filled in is not said") {
  const Imported imported = nccl(
      "<system version=\"1\"><cpu numaid=\"0\">\n"
      "<pci busid=\"0002:00:00.0\" class=\"0x030200\" link_speed=\"\" link_width=\"0\"/>\n"
      "<pci busid=\"0001:00:00.0\" class=\"0x030200\"/>\n"
      "<pci busid=\"0101:00:00.0\" class=\"0x020700\"/></cpu></system>\n");
  CHECK(messages(imported) == "");
  const json::Value line = machine(imported);
  CHECK(text_of(line, "nvlinks") == "");
  CHECK(of_gpus(line, "pcie") == Texts{"", ""});
  CHECK(text_of(line.find("nics")->items[0], "megabits") == "");
  CHECK(nearest_gpus(line) == Texts{"[0,1]"});
}

TEST_CASE("Files of NCCL that describe no server are called what they are") {
  CHECK(messages(nccl("<graphs version=\"1\">\n<graph id=\"0\"/></graphs>"))
            .find("topo:1:1: error: this is NCCL's choice of rings and trees") == 0);
  CHECK(messages(nccl("<svg/>")).find("topo:1:1: error: expected <system>, got <'svg'>") == 0);
  CHECK(messages(nccl("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci busid=\"0:16.0\"/>\n"
                      "</cpu></system>"))
            .find("topo:3:1: error: the PCIe devices have no class") == 0);
  CHECK(messages(nccl("<system>\n</system>")).find("topo: error: the file has no GPU") == 0);
  CHECK(messages(nccl("<system><cpu host_hash=\"0x1\"/>\n<cpu host_hash=\"0x2\"/></system>"))
            .find("topo:2:1: error: the file holds several servers") == 0);
}

TEST_CASE("Hostile XML is refused with its line") {
  const auto complaint = [](const std::string& text) {
    const Imported imported = nccl(text);
    CHECK_FALSE(imported.ok());
    return messages(imported);
  };
  std::string deep, hidden;
  for (int i = 0; i < 40; ++i)
    deep += "<pci>\n";
  CHECK(complaint("<system>\n" + deep +
                  [] {
                    std::string end;
                    for (int i = 0; i < 40; ++i)
                      end += "</pci>";
                    return end;
                  }() +
                  "</system>")
            .find("topo:33:1: error: elements are nested more than 32 deep") == 0);
  for (int i = 0; i < 100'000; ++i)
    deep += "<pci>";
  CHECK(complaint("<system>" + deep).find("more than 4096 tags") != std::string::npos);
  // Tags in what looks like quotes to one reader and not to another.
  for (int i = 0; i < 4000; ++i)
    hidden += "<a '=\"v\">";
  CHECK(complaint(hidden) != "");
  CHECK(complaint("<?xml version=\"1.0\"?>\n<!DOCTYPE a [<!ENTITY b \"&c;&c;\">]>\n<system/>")
            .find("topo:2:1: error: <!DOCTYPE is not read") == 0);
  CHECK(complaint(std::string("<system/>\n\0<cpu>", 16)).find("topo:2:1: error: a byte") == 0);
  CHECK(complaint("<system>\xff</system>").find("UTF-8") != std::string::npos);
  CHECK(complaint("").find("error") != std::string::npos);
  CHECK(complaint("<system/><system/>").find("2 outermost elements") != std::string::npos);
  CHECK(complaint("<system>\n<cpu>\n<pci busid=\"0")
            .find("topo:3:1: error: the file is no whole XML") == 0);
  CHECK(complaint(replaced(switched(), "count=\"5\"", "count=\"99999999999999999999\""))
            .find("topo:7:1: error: '99999999999999999999' is no number of NVLinks") == 0);
  CHECK(complaint(replaced(switched(), "count=\"5\"", "count=\"-1\"")).find("'-1'") !=
        std::string::npos);
  CHECK(complaint(replaced(switched(), "speed=\"100000\"", "speed=\"1e30\""))
            .find("'1e30' is no speed in Mbit/s") != std::string::npos);
  CHECK(complaint(replaced(switched(), "0000:12:00.0", "0000:11:00.0"))
            .find("no bus number of one GPU") != std::string::npos);
}

TEST_CASE("A topology that is cut off anywhere is refused") {
  const std::string text = switched();
  for (std::size_t size = 0; size + 11 < text.size(); ++size) {
    CAPTURE(size);
    REQUIRE_FALSE(nccl(text.substr(0, size)).ok());
  }
}

TEST_CASE("Damaged topologies never end in a crash") {
  SplitMix64 random(19);
  for (const std::string& text : {switched(), paired()})
    for (int i = 0; i < 2000; ++i) {
      std::string damaged = text;
      for (std::uint64_t k = 0; k <= random.below(4); ++k)
        damaged[random.below(damaged.size())] = static_cast<char>(random.below(128));
      const Imported imported = nccl(damaged);
      REQUIRE((imported.samples.size() == 1 || !imported.ok()));
    }
}

}  // namespace trainyard
