#include <nlohmann/json.hpp>

#include "calibrate/fit/samples/server_preset.h"
#include "sim/json/quantity.h"

namespace trainyard::fit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* link_name(ServerPreset::Links links) {
  switch (links) {
    case ServerPreset::Links::none: return "none";
    case ServerPreset::Links::nvswitch: return "nvswitch";
    case ServerPreset::Links::nvlink_mesh: return "nvlink_mesh";
    case ServerPreset::Links::pcie: return "pcie";
  }
  return "";
}

double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

int count(const Json& object, const char* key) {
  const double value = number(object, key);
  return value > 0 && value < 1e6 ? static_cast<int>(value) : 0;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

MeasuredGpu read_gpu(const Json& object) {
  MeasuredGpu gpu;
  gpu.name = text(object, "name");
  const std::string capability = text(object, "compute_capability");
  if (const std::size_t dot = capability.find('.');
      dot != std::string::npos && dot > 0 && dot <= 3 && dot + 1 < capability.size() &&
      capability.find_first_not_of("0123456789.") == std::string::npos) {
    gpu.major = std::stoi(capability.substr(0, dot));
    gpu.minor = capability[dot + 1] - '0';
  }
  gpu.multiprocessors = count(object, "multiprocessors");
  gpu.memory_bytes = number(object, "memory_bytes");
  gpu.l2_bytes = number(object, "l2_bytes");
  gpu.memory_bus_bits = number(object, "memory_bus_bits");
  gpu.memory_clock_mhz = number(object, "memory_clock_mhz");
  gpu.clock_mhz = number(object, "clock_mhz");
  if (const auto pcie = object.find("pcie"); pcie != object.end() && pcie->is_object()) {
    gpu.pcie_generation = count(*pcie, "generation");
    gpu.pcie_width = count(*pcie, "width");
  }
  if (object.contains("pcie_switch")) gpu.pcie_switch = count(object, "pcie_switch");
  gpu.nvswitch_links = count(object, "nvswitch_links");
  return gpu;
}

std::optional<MeasuredMachine> read_machine(const Json& line) {
  MeasuredMachine machine;
  const auto gpus = line.find("gpus");
  if (gpus == line.end() || !gpus->is_array() || gpus->empty()) return std::nullopt;
  for (const Json& gpu : *gpus) {
    if (!gpu.is_object()) return std::nullopt;
    machine.gpus.push_back(read_gpu(gpu));
  }
  if (const auto rows = line.find("nvlinks"); rows != line.end() && rows->is_array()) {
    for (const Json& row : *rows) {
      machine.nvlinks.emplace_back();
      for (const Json& cell : row)
        machine.nvlinks.back().push_back(cell.is_number_integer() ? cell.get<int>() : 0);
    }
  }
  if (const auto nics = line.find("nics"); nics != line.end() && nics->is_array()) {
    for (const Json& nic : *nics) {
      if (!nic.is_object()) continue;
      const auto nearest = nic.find("gpus");
      const bool listed = nearest != nic.end() && nearest->is_array();
      machine.nics.push_back(
          {number(nic, "megabits"), listed ? static_cast<int>(nearest->size()) : 0});
    }
  }
  machine.sockets = count(line, "sockets");
  machine.date = text(line, "date");
  return machine;
}

Json gpu_json(const GpuPreset& gpu) {
  Json object;
  object["name"] = gpu.name;
  object["memory"] = json::quantity_text(gpu.memory);
  object["memory_bandwidth"] = json::quantity_text(gpu.memory_bandwidth);
  for (const GpuPreset::Peak& peak : gpu.peaks)
    object["peak"][peak.dtype] = json::quantity_text(peak.rate);
  if (gpu.l2.count() > 0) object["l2"] = json::quantity_text(gpu.l2);
  object["multiprocessors"] = gpu.multiprocessors;
  return object;
}

// Networks count bits: "200Gbps".
std::string line_rate(BytesPerSecond rate) {
  const double gigabits = rate.count() * 8 / 1e9;
  const auto whole = static_cast<long>(gigabits);
  return static_cast<double>(whole) == gigabits ? std::to_string(whole) + "Gbps"
                                                : json::quantity_text(rate);
}

}  // namespace

std::optional<MeasuredMachine> measured_machine(std::string_view samples) {
  std::optional<MeasuredMachine> last;
  for (std::size_t begin = 0; begin < samples.size();) {
    const std::size_t end = std::min(samples.find('\n', begin), samples.size());
    const std::string_view line = samples.substr(begin, end - begin);
    begin = end + 1;
    if (line.find("\"machine\"") == std::string_view::npos) continue;
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object() || text(object, "kind") != "machine") continue;
    if (auto machine = read_machine(object)) last = std::move(machine);
  }
  return last;
}

std::string server_preset_json(const ServerPreset& preset) {
  Json object;
  object["name"] = preset.name;
  object["description"] = preset.description;
  object["source"] = preset.source;
  object["gpu"] = preset.own_gpu ? gpu_json(*preset.own_gpu) : Json(preset.gpu);
  object["gpus"] = preset.gpus;
  Json& intra = object["intra"];
  intra["kind"] = link_name(preset.links);
  if (preset.links != ServerPreset::Links::none)
    intra["bandwidth_per_gpu"] = json::quantity_text(preset.bandwidth);
  if (!preset.latency.empty()) intra["latency"] = preset.latency;
  for (const ServerPreset::Pair& pair : preset.mesh)
    intra["mesh"].push_back({{"a", pair.a}, {"b", pair.b}, {"links", pair.links}});
  object["nics"] = preset.nics;
  if (preset.nics > 0) {
    Json& nic = object["nic"];
    nic["bandwidth"] = line_rate(preset.nic_bandwidth);
    nic["latency"] = preset.nic_latency;
    nic["rail"] = "gpu";
    nic["efficiency"] = preset.nic_efficiency;
  }
  if (preset.sockets > 0) object["host"]["sockets"] = preset.sockets;
  if (preset.pcie_bandwidth.count() > 0)
    object["host"]["pcie_bandwidth"] = json::quantity_text(preset.pcie_bandwidth);
  if (preset.gpus_per_pcie_switch > 1)
    object["host"]["gpus_per_pcie_switch"] = preset.gpus_per_pcie_switch;
  return object.dump(2) + "\n";
}

}  // namespace trainyard::fit
