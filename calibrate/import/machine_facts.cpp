#include "calibrate/import/machine_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainyard::imports {
namespace {

json::Value numbers(const std::vector<int>& values) {
  json::Value list = json::Value::array();
  for (const int value : values)
    list.append(json::Value::of(value));
  return list;
}

json::Value gpu_line(const GpuFacts& facts) {
  json::Value gpu = json::Value::object();
  gpu.set("name", json::Value::of(facts.name));
  if (!facts.compute_capability.empty())
    gpu.set("compute_capability", json::Value::of(facts.compute_capability));
  if (facts.numa >= 0) gpu.set("numa", json::Value::of(facts.numa));
  if (facts.pcie_generation > 0) {
    json::Value pcie = json::Value::object();
    pcie.set("generation", json::Value::of(facts.pcie_generation));
    pcie.set("width", json::Value::of(facts.pcie_width));
    gpu.set("pcie", std::move(pcie));
  }
  if (facts.pcie_switch >= 0) gpu.set("pcie_switch", json::Value::of(facts.pcie_switch));
  if (facts.switch_links > 0) gpu.set("nvswitch_links", json::Value::of(facts.switch_links));
  return gpu;
}

json::Value nic_line(const NicFacts& facts) {
  json::Value nic = json::Value::object();
  nic.set("name", json::Value::of(facts.name));
  if (facts.megabits > 0) nic.set("megabits", json::Value::of(facts.megabits));
  if (facts.numa >= 0) nic.set("numa", json::Value::of(facts.numa));
  nic.set("gpus", numbers(facts.gpus));
  return nic;
}

// Whether the groups that `of` makes of the GPUs are of one size and neighbours, so that GPU g of n
// is in group g * groups / n.
template <class Of>
bool is_even(const std::vector<GpuFacts>& gpus, Of of) {
  std::vector<std::size_t> runs;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    if (g == 0 || of(gpus[g]) != of(gpus[g - 1])) runs.push_back(0);
    ++runs.back();
  }
  return std::all_of(runs.begin(), runs.end(),
                     [&](std::size_t run) { return run == runs.front(); });
}

// NICs per GPU, by the set of GPUs that share them: "2 NICs for 4 GPUs".
std::map<std::vector<int>, std::size_t> nics_of_groups(const MachineFacts& facts) {
  std::map<std::vector<int>, std::size_t> groups;
  for (const NicFacts& nic : facts.nics)
    if (!nic.gpus.empty()) ++groups[nic.gpus];
  return groups;
}

}  // namespace

json::Value machine_line(const MachineFacts& facts) {
  json::Value machine = json::Value::object();
  machine.set("kind", json::Value::of("machine"));
  machine.set("probe", json::Value::of(facts.probe));
  json::Value gpus = json::Value::array();
  for (const GpuFacts& gpu : facts.gpus)
    gpus.append(gpu_line(gpu));
  machine.set("gpus", std::move(gpus));
  if (!facts.nvlinks.empty()) {
    json::Value rows = json::Value::array();
    for (const std::vector<int>& row : facts.nvlinks)
      rows.append(numbers(row));
    machine.set("nvlinks", std::move(rows));
  }
  if (!facts.words.empty()) {
    json::Value rows = json::Value::array();
    for (const std::vector<std::string>& row : facts.words) {
      json::Value words = json::Value::array();
      for (const std::string& word : row)
        words.append(json::Value::of(word));
      rows.append(std::move(words));
    }
    machine.set("links", std::move(rows));
  }
  if (!facts.nics.empty()) {
    json::Value nics = json::Value::array();
    for (const NicFacts& nic : facts.nics)
      nics.append(nic_line(nic));
    machine.set("nics", std::move(nics));
  }
  if (facts.sockets > 0) machine.set("sockets", json::Value::of(facts.sockets));
  return machine;
}

void warn_of_uneven(const MachineFacts& facts, Notes& notes) {
  if (!is_even(facts.gpus, [](const GpuFacts& gpu) { return gpu.numa; }))
    notes.warning(0, "the GPUs lie unevenly over the NUMA nodes; a preset spreads them evenly");
  if (!is_even(facts.gpus, [](const GpuFacts& gpu) { return gpu.pcie_switch; }))
    notes.warning(0, "the GPUs lie unevenly below PCIe switches; a preset has no switches then");
  std::string unused;
  for (const NicFacts& nic : facts.nics)
    if (nic.gpus.empty()) unused += (unused.empty() ? "" : ", ") + nic.name;
  if (!unused.empty())
    notes.warning(
        0, fmt::format("left out of a preset: {}, as every GPU has a nearer NIC", shown(unused)));
  const auto groups = nics_of_groups(facts);
  if (groups.empty()) return;
  std::vector<int> served(facts.gpus.size());
  bool even = true;
  const auto& [first, nics] = *groups.begin();
  for (const auto& [gpus, count] : groups) {
    even = even && count * first.size() == nics * gpus.size();
    for (const int gpu : gpus)
      ++served[static_cast<std::size_t>(gpu)];
  }
  even = even && std::all_of(served.begin(), served.end(), [](int times) { return times == 1; });
  if (!even)
    notes.warning(0, "the GPUs share the NICs unevenly; a preset gives all of them as many");
}

}  // namespace trainyard::imports
