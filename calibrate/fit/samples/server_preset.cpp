#include "calibrate/fit/samples/server_preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::fit {
namespace {

// Dense multiply-adds count two. Per clock and multiprocessor, with sums in fp32: NVIDIA's
// whitepapers of GA100, GA102, AD102, GH100, and GB202, and the datasheet of B200 (2.25 PFLOP/s of
// 16 bits from 148 multiprocessors at 1.85 GHz).
struct Architecture {
  int major, minor;
  bool geforce;  // consumer boards sum into fp32 at half the rate
  double fp32, tf32, half, fp8;
};
constexpr std::array<Architecture, 10> kArchitectures = {{
    {8, 0, false, 128, 1024, 2048, 0},
    {8, 6, false, 256, 512, 1024, 0},
    {8, 6, true, 256, 256, 512, 0},
    {8, 9, false, 256, 512, 1024, 2048},
    {8, 9, true, 256, 256, 512, 1024},
    {9, 0, false, 256, 2048, 4096, 8192},
    {10, 0, false, 256, 4096, 8192, 16384},
    {10, 3, false, 256, 4096, 8192, 16384},
    {12, 0, false, 256, 512, 1024, 2048},
    {12, 0, true, 256, 256, 512, 1024},
}};

// Links of a GPU and the rate of one, per direction: datasheets of V100, A100, A40 (and the other
// boards of GA102, 112.5 GB/s over a bridge of four), H100, B200.
struct NvlinkGeneration {
  int major, minor;  // the last one of them that is not above a GPU's
  int links;
  double rate;
};
constexpr std::array<NvlinkGeneration, 5> kNvlinks = {
    {{7, 0, 6, 25e9}, {8, 0, 12, 25e9}, {8, 6, 4, 14.0625e9}, {9, 0, 18, 25e9}, {10, 0, 18, 50e9}}};

NvlinkGeneration nvlink_of(const MeasuredGpu& gpu) {
  if (gpu.major == 0) return kNvlinks[1];
  NvlinkGeneration last = kNvlinks.front();
  for (const NvlinkGeneration& generation : kNvlinks)
    if (std::pair(generation.major, generation.minor) <= std::pair(gpu.major, gpu.minor))
      last = generation;
  return last;
}

// What is left of a slot's rate after encoding and headers: 0.75 of 2 GB/s per lane of PCIe 4.0, as
// NCCL assumes (24 GB/s of 16 lanes); each generation doubles it.
BytesPerSecond pcie_rate(const MeasuredGpu& gpu) {
  if (gpu.pcie_generation < 1 || gpu.pcie_width < 1) return BytesPerSecond(0);
  double lane = 0.1875e9;
  for (int i = 1; i < gpu.pcie_generation; ++i)
    lane *= 2;
  return BytesPerSecond(lane * gpu.pcie_width);
}

std::string file_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter)
      name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (!name.empty() && name.back() == '-')
    name.pop_back();
  return name;
}

void join_by_switch(double rate, ServerPreset& preset) {
  preset.links = ServerPreset::Links::nvswitch;
  preset.bandwidth = BytesPerSecond(rate);
  preset.latency = "1.1us";
}

void join_by_pcie(BytesPerSecond slot, ServerPreset& preset) {
  preset.links = ServerPreset::Links::pcie;
  preset.bandwidth = slot.count() > 0 ? slot : BytesPerSecond(24e9);
  preset.latency = "2us";
}

void choose_links(const MeasuredMachine& machine, ServerPreset& preset) {
  const auto count = machine.gpus.size();
  const NvlinkGeneration nvlink = nvlink_of(machine.gpus.front());
  std::vector<ServerPreset::Pair> pairs;
  for (std::size_t a = 0; a < machine.nvlinks.size(); ++a)
    for (std::size_t b = a + 1; b < machine.nvlinks[a].size() && b < count; ++b)
      if (machine.nvlinks[a][b] > 0)
        pairs.push_back({static_cast<int>(a), static_cast<int>(b), machine.nvlinks[a][b]});
  const int most =
      pairs.empty()
          ? 0
          : std::max_element(pairs.begin(), pairs.end(), [](const auto& x, const auto& y) {
              return x.links < y.links;
            })->links;
  int into_switches = machine.gpus.front().nvswitch_links;
  for (const MeasuredGpu& gpu : machine.gpus)
    into_switches = std::min(into_switches, gpu.nvswitch_links);
  if (count < 2) {
    preset.links = ServerPreset::Links::none;
  } else if (into_switches > 0) {
    join_by_switch(into_switches * nvlink.rate, preset);
  } else if (pairs.empty()) {
    join_by_pcie(pcie_rate(machine.gpus.front()), preset);
  } else if (pairs.size() == count * (count - 1) / 2 &&
             most * static_cast<int>(count - 1) > nvlink.links) {
    // More links to its peers than a GPU has: they are counted through a switch.
    join_by_switch(most * nvlink.rate, preset);
  } else {
    preset.links = ServerPreset::Links::nvlink_mesh;
    preset.bandwidth = BytesPerSecond(nvlink.rate);
    preset.latency = "1.5us";
    preset.mesh = std::move(pairs);
  }
}

// GPUs below one switch, if all switches have as many and these are neighbours; else 1.
int gpus_of_a_switch(const MeasuredMachine& machine) {
  std::vector<int> runs;
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    const int own = machine.gpus[g].pcie_switch;
    if (own < 0) return 1;
    if (g == 0 || own != machine.gpus[g - 1].pcie_switch) runs.push_back(0);
    ++runs.back();
  }
  const bool even = std::all_of(runs.begin(), runs.end(), [&](int run) { return run == runs[0]; });
  return even ? runs.front() : 1;
}

BytesPerSecond slowest_nic(const MeasuredMachine& machine) {
  double least = 0;
  for (const MeasuredNic& nic : machine.nics)
    if (nic.gpus > 0 && nic.megabits > 0 && (least == 0 || nic.megabits < least))
      least = nic.megabits;
  return megabits_per_second(least);
}

}  // namespace

std::optional<GpuPreset> gpu_preset(const MeasuredGpu& gpu) {
  const bool geforce = gpu.name.find("GeForce") != std::string::npos;
  const auto* row =
      std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const Architecture& a) {
        return a.major == gpu.major && a.minor == gpu.minor && a.geforce == geforce;
      });
  if (row == kArchitectures.end() || gpu.multiprocessors <= 0 || gpu.clock_mhz <= 0 ||
      gpu.memory_bytes <= 0 || gpu.memory_bus_bits <= 0 || gpu.memory_clock_mhz <= 0)
    return std::nullopt;
  GpuPreset preset;
  preset.name = file_name(gpu.name);
  preset.memory = Bytes(static_cast<std::int64_t>(gpu.memory_bytes));
  preset.l2 = Bytes(static_cast<std::int64_t>(gpu.l2_bytes));
  // Two transfers per clock: all of HBM and GDDR as the driver counts their clock.
  preset.memory_bandwidth =
      BytesPerSecond(2 * gpu.memory_clock_mhz * 1e6 * gpu.memory_bus_bits / 8);
  const double clocks = gpu.clock_mhz * 1e6 * gpu.multiprocessors;
  preset.peaks = {{"fp32", FlopsPerSecond(row->fp32 * clocks)},
                  {"tf32", FlopsPerSecond(row->tf32 * clocks)},
                  {"fp16", FlopsPerSecond(row->half * clocks)},
                  {"bf16", FlopsPerSecond(row->half * clocks)}};
  if (row->fp8 > 0) preset.peaks.push_back({"fp8", FlopsPerSecond(row->fp8 * clocks)});
  preset.multiprocessors = gpu.multiprocessors;
  return preset;
}

ServerPreset server_preset(const MeasuredMachine& machine, std::string name,
                           std::string shipped_gpu) {
  TRAINYARD_CHECK(!machine.gpus.empty(), "a machine without GPUs");
  const MeasuredGpu& gpu = machine.gpus.front();
  ServerPreset preset;
  preset.name = std::move(name);
  preset.gpus = static_cast<int>(machine.gpus.size());
  preset.description = fmt::format("Measured machine with {} x {}", preset.gpus, gpu.name);
  preset.source = fmt::format(
      "Its drivers, as the probes asked them{}. Rates of links: of their generation. Latencies: "
      "assumed. Network cards are not measured; write nics and nic.",
      machine.date.empty() ? "" : " on " + machine.date);
  preset.gpu = std::move(shipped_gpu);
  if (preset.gpu.empty()) {
    preset.own_gpu = gpu_preset(gpu);
    TRAINYARD_CHECK(preset.own_gpu.has_value(), "no preset for {}", gpu.name);
  }
  choose_links(machine, preset);
  preset.sockets = machine.sockets;
  preset.pcie_bandwidth = pcie_rate(gpu);
  return preset;
}

bool says_links(const MeasuredMachine& machine) {
  return machine.gpus.size() == 1 || !machine.nvlinks.empty();
}

NicCount count_nics(const MeasuredMachine& machine) {
  NicCount count;
  for (const MeasuredNic& nic : machine.nics) {
    if (nic.gpus == 0) continue;
    ++count.used;
    if (nic.megabits > 0) ++count.with_speed;
  }
  return count;
}

namespace {

// What a preset's `source` says of where its numbers are from.
struct Origins {
  std::string given, assumed = "latencies";
  static void note(std::string& text, std::string_view what) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", what);
  }
};

BytesPerSecond described_pcie(const DescribedServer& server, Origins& origins) {
  MeasuredGpu gpu = server.machine.gpus.front();
  if (server.pcie_bandwidth.count() > 0) {
    Origins::note(origins.given, "PCIe bandwidth");
    return server.pcie_bandwidth;
  }
  if (pcie_rate(gpu).count() > 0) return pcie_rate(gpu);
  if (server.gpu_pcie_bandwidth.count() > 0) {
    Origins::note(origins.assumed, "PCIe bandwidth, of the GPU preset");
    return server.gpu_pcie_bandwidth;
  }
  gpu.pcie_generation = gpu.major >= 9 ? 5 : gpu.major >= 8 ? 4 : 3;
  gpu.pcie_width = 16;
  Origins::note(origins.assumed,
                fmt::format("PCIe {}.0 x16, as the GPU has it", gpu.pcie_generation));
  return pcie_rate(gpu);
}

void join_described(const DescribedServer& server, ServerPreset& preset, Origins& origins) {
  choose_links(server.machine, preset);
  if (server.links) {
    Origins::note(origins.given, "how the GPUs are joined");
    preset.mesh.clear();
    preset.links = *server.links;
    const NvlinkGeneration nvlink = nvlink_of(server.machine.gpus.front());
    if (preset.links == ServerPreset::Links::nvswitch)
      join_by_switch(nvlink.links * nvlink.rate, preset);
    if (preset.links == ServerPreset::Links::pcie) join_by_pcie(preset.pcie_bandwidth, preset);
  }
  if (preset.links == ServerPreset::Links::pcie && !server.links && !server.has_peers) {
    preset.links = ServerPreset::Links::none;
    Origins::note(origins.assumed,
                  "copies between GPUs go through the host's memory, as GeForce has none from peer "
                  "to peer over PCIe (--intra pcie: it has)");
  }
  if (preset.links == ServerPreset::Links::pcie)
    preset.bandwidth = preset.pcie_bandwidth;
  else if (preset.links != ServerPreset::Links::none)
    Origins::note(origins.assumed, "an NVLink's rate, of the GPU's generation");
}

void add_described_nics(const DescribedServer& server, ServerPreset& preset, Origins& origins) {
  preset.nics = count_nics(server.machine).used;
  if (preset.nics == 0) return;
  preset.nic_bandwidth =
      server.nic_bandwidth.count() > 0 ? server.nic_bandwidth : slowest_nic(server.machine);
  if (server.nic_bandwidth.count() > 0) Origins::note(origins.given, "speed of a NIC");
  preset.nic_latency = "1.5us";
  preset.nic_efficiency = 0.9;
  Origins::note(origins.assumed,
                "NIC efficiency 0.9, which large all-reduces of five published clusters have");
}

}  // namespace

ServerPreset described_server(const DescribedServer& server, std::string name,
                              std::string shipped_gpu) {
  const MeasuredMachine& machine = server.machine;
  TRAINYARD_CHECK(!machine.gpus.empty() && !shipped_gpu.empty(), "a server without GPUs");
  Origins origins;
  ServerPreset preset;
  preset.name = std::move(name);
  preset.gpu = std::move(shipped_gpu);
  preset.gpus = static_cast<int>(machine.gpus.size());
  preset.description = fmt::format("Server with {} x {}", preset.gpus, preset.gpu);
  preset.sockets = machine.sockets;
  preset.gpus_per_pcie_switch = gpus_of_a_switch(machine);
  preset.pcie_bandwidth = described_pcie(server, origins);
  join_described(server, preset, origins);
  add_described_nics(server, preset, origins);
  const std::string given = origins.given.empty() ? "" : "Given: " + origins.given + ". ";
  preset.source = fmt::format("{}. {}Assumed: {}.", server.origin, given, origins.assumed);
  return preset;
}

}  // namespace trainyard::fit
