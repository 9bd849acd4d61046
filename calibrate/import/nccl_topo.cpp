// The topology of a server as NCCL writes it (NCCL_TOPO_DUMP_FILE) and reads it (NCCL_TOPO_FILE): a
// tree of NUMA nodes, PCIe bridges, GPUs with their NVLinks, and NICs.
// Source: NCCL, src/graph/xml.cc and topo.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "calibrate/import/line_diagnostics.h"
#include "calibrate/import/machine_facts.h"
#include "calibrate/import/xml.h"

namespace trainyard::imports {
namespace {

constexpr std::size_t kMostDevices = 1024;
constexpr std::int64_t kMostLinks = 1024;
constexpr std::int64_t kMostMegabits = 100'000'000;

// GT/s of a lane: 2.5 is the first generation of PCIe.
constexpr std::array<std::string_view, 6> kLinkSpeeds = {"2.5", "5", "8", "16", "32", "64"};

// "32.0 GT/s PCIe" is 5; 0: not said.
int pcie_generation(std::string_view speed) {
  speed = speed.substr(0, speed.find(' '));
  if (speed.ends_with(".0")) speed.remove_suffix(2);
  const auto* found = std::find(kLinkSpeeds.begin(), kLinkSpeeds.end(), speed);
  return found == kLinkSpeeds.end() ? 0 : static_cast<int>(found - kLinkSpeeds.begin()) + 1;
}

int pcie_width(std::string_view lanes) {
  const auto width = find_count(lanes);
  return width && *width <= 32 ? static_cast<int>(*width) : 0;
}

// What a link of the tree carries, to compare two of them; 0: not said.
int pcie_rate(const XmlElement& pci) {
  const int generation = pcie_generation(pci.attribute("link_speed"));
  return generation == 0 ? 0 : pcie_width(pci.attribute("link_width")) << generation;
}

struct Gpu {
  const XmlElement* pci;
  const XmlElement* gpu;  // null where NCCL has not filled it in
  int cpu;
  std::vector<const XmlElement*> path;  // from the host down to its own link
};

struct Nic {
  std::string name;
  std::int64_t megabits;
  int cpu;
  std::vector<const XmlElement*> path;
};

// How far the host is from where two paths part: more is nearer. -1: on two NUMA nodes.
int nearness(const Gpu& gpu, const Nic& nic) {
  if (gpu.cpu != nic.cpu) return -1;
  const auto parted =
      std::mismatch(gpu.path.begin(), gpu.path.end(), nic.path.begin(), nic.path.end());
  return static_cast<int>(parted.first - gpu.path.begin());
}

class Server {
 public:
  Server(const ImportOptions& options, Notes& notes) : options_(options), notes_(notes) {}

  void read(const XmlElement& system) {
    if (!is_one_server(system)) return;
    for (const XmlElement& cpu : system.children) {
      if (cpu.name != "cpu") continue;
      cpus_.push_back(&cpu);
      for (const XmlElement& child : cpu.children)
        device(child, {});
    }
    if (gpus_.empty()) return no_gpus();
    if (gpus_.size() + nics_.size() > kMostDevices)
      return notes_.error(system.line, fmt::format("more than {} devices", kMostDevices));
    put_in_order();
    MachineFacts facts;
    facts.probe = "NCCL topology";
    write_gpus(facts);
    write_links(facts);
    write_nics(facts);
    std::set<int> nodes;
    for (const Gpu& gpu : gpus_)
      nodes.insert(gpu.cpu);
    facts.sockets = static_cast<int>(nodes.size());
    if (!good_) return;
    if (options_.for_preset) warn_of_uneven(facts, notes_);
    notes_.add(machine_line(facts));
  }

 private:
  bool is_one_server(const XmlElement& system) {
    if (system.name == "graphs") {
      notes_.error(system.line,
                   "this is NCCL's choice of rings and trees, which NCCL_GRAPH_DUMP_FILE names",
                   "write the topology: NCCL_TOPO_DUMP_FILE=topo.xml");
      return false;
    }
    if (system.name != "system") {
      notes_.error(system.line, fmt::format("expected <system>, got <{}>", shown(system.name)),
                   "write the topology: NCCL_TOPO_DUMP_FILE=topo.xml");
      return false;
    }
    std::set<std::string_view> hosts;
    for (const XmlElement& cpu : system.children)
      if (hosts.insert(cpu.attribute("host_hash")).second && hosts.size() > 1) {
        notes_.error(cpu.line, "the file holds several servers",
                     "write it on one: NCCL_TOPO_DUMP_FILE=topo.xml and a job of one server");
        return false;
      }
    return true;
  }

  void device(const XmlElement& element, std::vector<const XmlElement*> path) {
    if (element.name == "nic") return nets(element, path, "");
    if (element.name != "pci") return;
    path.push_back(&element);
    const std::string_view kind = element.attribute("class");
    const XmlElement* gpu = nullptr;
    const XmlElement* nic = nullptr;
    for (const XmlElement& child : element.children) {
      if (child.name == "gpu") gpu = &child;
      if (child.name == "nic") nic = &child;
    }
    if (gpu != nullptr || kind.starts_with("0x03"))
      gpus_.push_back({&element, gpu, cpu(), path});
    else if (nic != nullptr)
      nets(*nic, path, element.attribute("busid"));
    else if (kind.starts_with("0x02"))
      nics_.push_back({std::string(element.attribute("busid")), 0, cpu(), path});
    else if (kind.empty() && element.children.empty() && nameless_ == nullptr)
      nameless_ = &element;
    for (const XmlElement& child : element.children)
      if (child.name == "pci") device(child, path);
  }

  // A port of a NIC is a NIC: NCCL sends over each.
  void nets(const XmlElement& nic, const std::vector<const XmlElement*>& path,
            std::string_view busid) {
    bool any = false;
    for (const XmlElement& net : nic.children) {
      if (net.name != "net") continue;
      any = true;
      const auto speed = find_count(net.attribute("speed"));
      if (!net.attribute("speed").empty() && (!speed || *speed > kMostMegabits))
        fail(net.line, fmt::format("{} is no speed in Mbit/s", shown(net.attribute("speed"))));
      nics_.push_back({std::string(net.attribute("name")), speed.value_or(0), cpu(), path});
    }
    if (!any) nics_.push_back({std::string(busid), 0, cpu(), path});
  }

  int cpu() const { return static_cast<int>(cpus_.size()) - 1; }

  void no_gpus() {
    if (nameless_ != nullptr)
      return notes_.error(nameless_->line,
                          "the PCIe devices have no class: which of them are GPUs, NCCL asks the "
                          "server that reads this file",
                          "let NCCL write there what it finds: NCCL_TOPO_DUMP_FILE=topo.xml");
    notes_.error(0, "the file has no GPU", "write it with NCCL_TOPO_DUMP_FILE=topo.xml");
  }

  // NCCL's numbers where it has given them, else the order of the bus, which is CUDA's for equal
  // GPUs.
  void put_in_order() {
    std::set<std::int64_t> numbers;
    for (const Gpu& gpu : gpus_)
      if (gpu.gpu != nullptr) numbers.insert(find_count(gpu.gpu->attribute("dev")).value_or(-1));
    const bool numbered = numbers.size() == gpus_.size() && *numbers.begin() >= 0;
    std::stable_sort(gpus_.begin(), gpus_.end(), [&](const Gpu& a, const Gpu& b) {
      if (numbered)
        return *find_count(a.gpu->attribute("dev")) < *find_count(b.gpu->attribute("dev"));
      return a.pci->attribute("busid") < b.pci->attribute("busid");
    });
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const std::string_view busid = gpus_[i].pci->attribute("busid");
      if (busid.empty() || !at_.emplace(busid, i).second)
        fail(gpus_[i].pci->line, fmt::format("{} is no bus number of one GPU", shown(busid)));
    }
  }

  void write_gpus(MachineFacts& facts) {
    std::map<const XmlElement*, int> switches;
    bool slow = false;
    for (const Gpu& gpu : gpus_) {
      GpuFacts& one = facts.gpus.emplace_back();
      one.name = name_of(gpu);
      if (gpu.gpu != nullptr)
        if (const auto sm = find_count(gpu.gpu->attribute("sm")); sm && *sm >= 10 && *sm < 1000)
          one.compute_capability = fmt::format("{}.{}", *sm / 10, *sm % 10);
      const auto node = find_count(cpus_[static_cast<std::size_t>(gpu.cpu)]->attribute("numaid"));
      one.numa = node && *node <= 4096 ? static_cast<int>(*node) : -1;
      one.pcie_generation = pcie_generation(gpu.pci->attribute("link_speed"));
      one.pcie_width = pcie_width(gpu.pci->attribute("link_width"));
      if (one.pcie_width == 0) one.pcie_generation = 0;
      one.pcie_switch =
          switches.emplace(gpu.path.front(), static_cast<int>(switches.size())).first->second;
      const int above = pcie_rate(*gpu.path.front());
      if (above > 0 && above < pcie_rate(*gpu.pci) && !std::exchange(slow, true))
        notes_.warning(
            gpu.path.front()->line,
            "this switch's link to the host is written slower than those of its GPUs, as a "
            "link at rest is; theirs are taken");
    }
  }

  std::string name_of(const Gpu& gpu) {
    if (!options_.gpu.empty()) return options_.gpu;
    const auto number = [&](std::string_view key) {
      const std::string_view text = gpu.pci->attribute(key);
      return text.starts_with("0x") && text.size() == 6 ? std::string(text.substr(2)) : "";
    };
    const std::string vendor = number("vendor"), device = number("device");
    if (!vendor.empty() && !device.empty() && vendor != "0000" && vendor != "ffff")
      return vendor + ":" + device;
    if (good_ && !options_.for_preset)
      fail(gpu.pci->line, "the file does not name the GPUs", "add --gpu NAME");
    return "";
  }

  void write_links(MachineFacts& facts) {
    if (std::none_of(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.gpu != nullptr; }))
      return;
    facts.nvlinks.assign(gpus_.size(), std::vector<int>(gpus_.size(), 0));
    for (std::size_t i = 0; i < gpus_.size(); ++i)
      if (gpus_[i].gpu != nullptr)
        for (const XmlElement& link : gpus_[i].gpu->children)
          if (link.name == "nvlink") write_link(link, i, facts);
    for (std::size_t i = 0; i < gpus_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (facts.nvlinks[i][j] != facts.nvlinks[j][i])
          fail(gpus_[i].gpu != nullptr ? gpus_[i].gpu->line : gpus_[i].pci->line,
               fmt::format("GPU {} has {} NVLinks to GPU {}, and {} back", i, facts.nvlinks[i][j],
                           j, facts.nvlinks[j][i]));
  }

  void write_link(const XmlElement& link, std::size_t from, MachineFacts& facts) {
    const auto count = find_count(link.attribute("count"));
    if (!count || *count < 1 || *count > kMostLinks)
      return fail(link.line,
                  fmt::format("{} is no number of NVLinks", shown(link.attribute("count"))));
    const std::string_view kind = link.attribute("tclass");
    if (kind.starts_with("0x0680") && kind != "0x068001") {
      facts.gpus[from].switch_links += static_cast<int>(*count);
      return;
    }
    const auto found = at_.find(link.attribute("target"));
    if (found == at_.end())
      return notes_.warning(link.line, "left out: an NVLink to what is no GPU of this file");
    if (found->second == from)
      return notes_.warning(link.line, "left out: an NVLink of a GPU to itself joins nothing");
    facts.nvlinks[from][found->second] += static_cast<int>(*count);
  }

  void write_nics(MachineFacts& facts) const {
    for (const Nic& nic : nics_) {
      NicFacts& one = facts.nics.emplace_back();
      one.name = nic.name;
      one.megabits = nic.megabits;
      const auto node = find_count(cpus_[static_cast<std::size_t>(nic.cpu)]->attribute("numaid"));
      one.numa = node && *node <= 4096 ? static_cast<int>(*node) : -1;
    }
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      int nearest = -2;
      for (const Nic& nic : nics_)
        nearest = std::max(nearest, nearness(gpus_[g], nic));
      for (std::size_t n = 0; n < nics_.size(); ++n)
        if (nearness(gpus_[g], nics_[n]) == nearest)
          facts.nics[n].gpus.push_back(static_cast<int>(g));
    }
  }

  void fail(int line, std::string message, std::string hint = {}) {
    notes_.error(line, std::move(message), std::move(hint));
    good_ = false;
  }

  const ImportOptions& options_;
  Notes& notes_;
  std::vector<const XmlElement*> cpus_;
  std::vector<Gpu> gpus_;
  std::vector<Nic> nics_;
  std::map<std::string_view, std::size_t> at_;  // GPU by its bus number
  const XmlElement* nameless_ = nullptr;        // the first device without a class
  bool good_ = true;
};

}  // namespace

Imported import_nccl_topo(std::string_view text, const std::string& file,
                          const ImportOptions& options) {
  Imported imported;
  Notes notes(file, imported);
  const std::optional<XmlElement> root = read_xml(text, notes);
  if (root) Server(options, notes).read(*root);
  return imported;
}

}  // namespace trainyard::imports
