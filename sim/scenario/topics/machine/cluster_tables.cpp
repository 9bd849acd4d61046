// /cluster: the tables of its parts.
#include <fmt/format.h>

#include "sim/scenario/topics/assemble.h"
#include "topologies/cluster_check.h"

namespace trainyard {

void visit_fields(json::Fields& f, StepTime& s) {
  f.field("bytes", s.bytes, json::required, json::not_negative, "What a rank sends in the step.");
  f.field("time", s.time, json::required, json::between(0, 1e13), "Beside its hop and its bytes.");
}

}  // namespace trainyard

namespace trainyard::topologies {

namespace {

using json::at_least;
using json::between;
using json::Choice;
using json::not_negative;
using json::optional;
using json::positive;
using json::required;

constexpr std::array<Choice<IntraKind>, 5> kIntraKinds = {{{"nvswitch", IntraKind::nvswitch},
                                                           {"nvlink_mesh", IntraKind::nvlink_mesh},
                                                           {"pcie", IntraKind::pcie},
                                                           {"none", IntraKind::none},
                                                           {"torus", IntraKind::torus}}};
constexpr std::array<Choice<ProcessorKind>, 2> kProcessorKinds = {
    {{"gpu", ProcessorKind::gpu}, {"cpu", ProcessorKind::cpu}}};
constexpr std::array<Choice<bool>, 2> kRails = {{{"gpu", true}, {"none", false}}};
constexpr std::array<Choice<Routing>, 2> kRoutings = {
    {{"ecmp", Routing::ecmp}, {"d_mod_k", Routing::d_mod_k}}};
// In the order of the alternatives of FabricSpec.
constexpr std::array<std::string_view, 4> kFabricKinds = {"single_switch", "fat_tree", "clos",
                                                          "dragonfly"};

// What links and memories of machines move, with decades to spare on both sides.
constexpr json::Bounds kRate = between(1e6, 1e18);
constexpr json::Bounds kLatency = between(0, 1e12);  // picoseconds

// Objects of the file whose fields are the server's own.
struct Intra {
  ServerSpec& server;
};
struct Nic {
  ServerSpec& server;
};
struct Host {
  ServerSpec& server;
};

struct Peaks {
  GpuSpec& gpu;
};
void visit_fields(json::Fields& f, Peaks& s) {
  static constexpr std::string_view kAbout =
      "Dense datasheet peak; absent: the chip has no such unit.";
  const auto rate = [&f](std::string_view key, FlopsPerSecond& peak) {
    f.field(key, peak, optional, between(0, 1e21), kAbout);
    if (peak.count() > 0 && peak.count() < 1e6)
      f.problem(key, fmt::format("{} FLOP/s is less than 1MFLOP/s", peak.count()));
  };
  rate("fp32", s.gpu.fp32);
  rate("tf32", s.gpu.tf32);
  rate("fp16", s.gpu.fp16);
  rate("bf16", s.gpu.bf16);
  rate("fp8", s.gpu.fp8);
}

struct Sustained {
  GpuSpec& gpu;
};
void visit_fields(json::Fields& f, Sustained& s) {
  static constexpr std::string_view kAbout =
      "Share of that peak which products of 8192 x 8192 x 8192 were measured to reach.";
  const auto share = [&](std::string_view key, double& reached, FlopsPerSecond peak) {
    f.field(key, reached, optional, between(0.01, 2), kAbout);
    if (reached > 0 && peak.count() <= 0)
      f.problem(key, "the chip has no such unit",
                fmt::format("state peak/{}, or null for sustained/{}", key, key));
  };
  share("fp32", s.gpu.sustained.fp32, s.gpu.fp32);
  share("tf32", s.gpu.sustained.tf32, s.gpu.tf32);
  share("fp16", s.gpu.sustained.fp16, s.gpu.fp16);
  share("bf16", s.gpu.sustained.bf16, s.gpu.bf16);
  share("fp8", s.gpu.sustained.fp8, s.gpu.fp8);
  f.accepted("source", "Where the numbers come from.");
}

struct Power {
  GpuSpec& gpu;
};
void visit_fields(json::Fields& f, Power& s) {
  f.field("idle", s.gpu.idle_power, required, positive,
          "Of the board in a job, while no kernel runs.");
  f.field("busy", s.gpu.busy_power, required, positive,
          "While one runs; presets: the board's limit, which is the most.");
  f.field("limit", s.gpu.power_limit, optional, positive,
          "Set below what presets give as busy: products, attention and convolutions slow down.");
  if (s.gpu.power_limit > s.gpu.busy_power)
    f.problem("limit", "more than the busy power of the board", "state at most what busy says");
  const auto of_kind = [&](std::string_view key, Watts& power, std::string_view about) {
    f.field(key, power, optional, positive, about);
    if (power > s.gpu.busy_power)
      f.problem(key, "more than the busy power of the board", "state at most what busy says");
  };
  of_kind("attention", s.gpu.attention_power, "While fused attention runs; absent: busy.");
  of_kind("memory_bound", s.gpu.memory_bound_power,
          "While a kernel runs that memory sets the pace of; absent: busy.");
  of_kind("communication", s.gpu.communication_power,
          "While communication moves and no kernel runs; absent: idle.");
  f.accepted("source", "Where the numbers come from.");
}

}  // namespace

void visit_fields(json::Fields& f, Cooling& s) {
  f.field("inlet", s.inlet, required, between(-50, 150),
          "Temperature of the air or the water that cools it, in degrees Celsius.");
  f.field("busy", s.busy, required, between(-50, 200),
          "Of the GPU after minutes at its busy power, as nvidia-smi shows it.");
  f.field("time_constant", s.time_constant, required, between(1e9, 1e16),
          "In which it comes 63 % of the way to where it settles.");
  f.field("limit", s.limit, between(-50, 200), "At which the driver lowers clocks.");
  f.field("throttle", s.throttle, optional,
          "Whether a GPU that would settle above its limit runs products at the power that the "
          "limit leaves.");
  if (s.busy <= s.inlet)
    f.problem("busy", "a busy GPU would be no hotter than what cools it", "state what it reaches");
  if (s.limit && *s.limit <= s.inlet)
    f.problem("limit", "what cools the GPU is no cooler than its limit", "state a higher one");
  if (s.throttle && !s.limit)
    f.problem("throttle", "at which temperature is not said", "state limit");
}

namespace {

void visit_fields(json::Fields& f, Intra& s) {
  f.choice("kind", s.server.intra, kIntraKinds, required,
           "How the GPUs of a server reach each other.");
  f.field(
      "bandwidth_per_gpu", s.server.intra_bandwidth, optional, kRate,
      "Per direction: of a GPU (nvswitch), of a link (nvlink_mesh, torus), of a slot (pcie, none; "
      "default: host/pcie_bandwidth, else the GPU's own). Required of several GPUs that nvswitch, "
      "nvlink_mesh or torus joins.");
  f.field("latency", s.server.intra_latency, optional, kLatency, "Of one hop.");
  if (f.sections("mesh", s.server.mesh, optional, "Linked pairs of an nvlink_mesh.") &&
      s.server.mesh.empty())
    f.problem("mesh", "no pair of GPUs is linked", "list the pairs, or remove it");
  f.list("dimensions", s.server.torus.sizes, optional, between(1, kMostTorusGpus),
         "Sizes of a torus, the last of which GPU numbers count first.");
  f.field("closed", s.server.torus.closed, optional,
          "Whether the dimensions of a torus are rings; else lines.");
}

void steps(json::Fields& f, std::string_view key, std::vector<StepTime>& times,
           std::string_view meaning) {
  if (!f.sections(key, times, optional, meaning)) return;
  for (std::size_t at = 1; at < times.size(); ++at)
    if (!(times[at - 1].bytes < times[at].bytes))
      f.problem(key, "sizes must grow from one step to the next", "sort them by bytes");
}

void visit_fields(json::Fields& f, Nic& s) {
  f.source({.key = "transport",
            .need = json::optional,
            .about = "By which NCCL speaks to it, a file of configs/transports: efficiency, start "
                     "and steps of collectives between servers; fields beside it replace its own.",
            .known = scenario::shipped_transports});
  f.field("bandwidth", s.server.nic_bandwidth, required, kRate, "Line rate, per direction.");
  f.field("latency", s.server.nic_latency, optional, kLatency, "Of the NIC.");
  f.choice("rail", s.server.rail_per_gpu, kRails, optional, "gpu: NIC i belongs to GPU i.");
  f.field("efficiency", s.server.nic_efficiency, optional, between(1e-3, 1),
          "Reachable share of the line rate.");
  f.field("start", s.server.nic_start, kLatency,
          "Of a collective between servers; absent: what starting one inside a server takes.");
  steps(f, "steps", s.server.nic_steps,
        "By growing size: how much longer than its hop and its bytes a step of a collective "
        "between servers takes.");
  steps(f, "tree_steps", s.server.nic_tree_steps,
        "The same of the levels of a tree, by the whole buffer; absent: as steps.");
  steps(f, "exchange_steps", s.server.nic_exchange_steps,
        "The same of an all-to-all, by what goes to one rank; absent: as steps.");
  f.field("exchange_efficiency", s.server.nic_exchange_efficiency, optional, between(1e-3, 1e3),
          "Bandwidth between servers that an all-to-all reaches over a ring's.");
  if (s.server.nic_exchange_efficiency * s.server.nic_efficiency > 1)
    f.problem("exchange_efficiency", "an all-to-all would be faster than the NIC's line",
              "its product with efficiency is at most 1");
}

void visit_fields(json::Fields& f, Host& s) {
  f.field("pcie_bandwidth", s.server.pcie_bandwidth, optional, kRate,
          "GPU or NIC to its host bridge.");
  f.field("socket_bandwidth", s.server.socket_bandwidth, optional, kRate, "Between two sockets.");
  f.field("sockets", s.server.sockets, optional, between(1, kMostSockets), "Processors.");
  f.field("cores", s.server.host_cores, optional, between(0, kMostCores),
          "Of all its processors, which workers of an input pipeline share; 0: one for each.");
  f.field("gpus_per_pcie_switch", s.server.gpus_per_pcie_switch, optional,
          between(1, kMostServerGpus),
          "Neighbouring GPUs that share one link of pcie_bandwidth to the host.");
  f.field("memory", s.server.host_memory, optional, positive,
          "Of the server; what is offloaded must fit.");
  f.field("memory_bandwidth", s.server.host_memory_bandwidth, optional, kRate,
          "Of the host's memory, reads and writes together, over all sockets.");
  f.field("nvme_capacity", s.server.nvme_capacity, optional, positive,
          "Of all drives of the server.");
  f.field("nvme_read_bandwidth", s.server.nvme_read_bandwidth, optional, kRate,
          "Of all drives together.");
  f.field("nvme_write_bandwidth", s.server.nvme_write_bandwidth, optional, kRate,
          "Of all drives together.");
  f.field("launch_factor", s.server.host_launch_factor, optional, between(0.1, 10),
          "What launches and calls take, over an x86 server, on which they are measured.");
}

void visit_fields(json::Fields& f, SingleSwitch& s) {
  f.field("switch_latency", s.switch_latency, optional, kLatency, "Of the switch.");
}

void visit_fields(json::Fields& f, FatTree& s) {
  f.field("tiers", s.tiers, optional, between(2, 3), "Layers of switches.");
  f.field("radix", s.radix, optional, between(2, kMostRadix), "Ports of a switch.");
  f.list("oversubscription", s.oversubscription, optional, between(1, 1e3),
         "Down to up capacity per tier; absent ones are 1.");
  f.field("switch_latency", s.switch_latency, optional, kLatency, "Of a switch.");
}

void visit_fields(json::Fields& f, Clos& s) {
  f.sections("levels", s.levels, required, "From the servers upwards.");
}

void visit_fields(json::Fields& f, Dragonfly& s) {
  f.field("nics_per_router", s.nics_per_router, required, between(1, kMostRadix), "On one router.");
  f.field("routers_per_group", s.routers_per_group, required, between(1, kMostRouters),
          "All joined to each other.");
  f.field("global_links", s.global_links, required, between(0, kMostRadix),
          "Of a router, to other groups; all groups are joined by as many as there are for each "
          "pair.");
  f.field("local_bandwidth", s.local_bandwidth, optional, kRate,
          "Of a link in a group. Default: of the fastest NIC.");
  f.field("global_bandwidth", s.global_bandwidth, optional, kRate,
          "Of a link between groups. Default: of the fastest NIC.");
  f.field("switch_latency", s.switch_latency, optional, kLatency, "Of a router.");
  f.field("global_latency", s.global_latency, optional, kLatency,
          "Of a cable between groups, beside the router behind it.");
}

void describe_preset(json::Fields& f) {
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
}

}  // namespace

void visit_fields(json::Fields& f, NvlinkPair& s) {
  f.field("a", s.a, required, at_least(0), "GPU of the server.");
  f.field("b", s.b, required, at_least(0), "GPU of the server.");
  f.field("links", s.links, optional, between(1, kMostMeshLinks), "Parallel links.");
}

void visit_fields(json::Fields& f, ClosLevel& s) {
  f.field("name", s.name, required, "rack, pod, spine, ...");
  f.field("gpus", s.gpus, required, between(1, 1 << 24),
          "Under one group of switches of this level.");
  f.field("oversubscription", s.oversubscription, optional, between(1, 1e3),
          "Down to up capacity.");
  f.field("latency", s.latency, optional, kLatency, "Of one switch.");
}

void visit_fields(json::Fields& f, GpuSpec& s) {
  f.source({.key = "preset",
            .need = json::optional,
            .about = "A file of configs/gpus; fields beside it replace its own.",
            .known = scenario::shipped_gpus});
  describe_preset(f);
  f.field("name", s.name, optional, "By which a profile recognises it.");
  f.accepted(
      "device_names",
      "As drivers and the PCI bus (10de:2330) call it, by which a measurement finds the preset.");
  f.choice("kind", s.kind, kProcessorKinds, optional,
           "cpu: the server's processors as one device, which launches its own kernels.");
  f.field("compute_capability", s.compute_capability, optional,
          "Of CUDA: GPUs of the same one stand in for each other.");
  f.field("memory", s.memory, required, positive,
          "Device memory that the driver gives programs; datasheets say more.");
  f.field("memory_bandwidth", s.memory_bandwidth, required, kRate, "Of device memory.");
  Peaks peak{s};
  f.section("peak", peak, required, "Compute rates by number format, without sparsity.");
  Sustained sustained{s};
  f.section("sustained", sustained, optional,
            "What large products reach, for types that the GPU's profile has no law of.");
  f.field(
      "pcie_bandwidth", s.pcie_bandwidth, optional, kRate,
      "Of its slot, each way, as reached; taken where PCIe joins the GPUs and neither intra nor "
      "host says it.");
  Power power{s};
  f.section("power", power, optional, "Electrical power, for the energy of a training.");
  f.section("cooling", s.cooling, "How hot it becomes; absent: not known.");
  if (s.cooling && s.busy_power <= Watts(0))
    f.problem("cooling", "heat is power, and the GPU's is not known", "state power");
  else if (s.cooling && s.cooling->limit &&
           s.cooling->settled(s.idle_power, s.busy_power) >= *s.cooling->limit)
    f.problem("cooling", "an idle GPU would be hotter than its limit", "state a higher limit");
  f.field("l2", s.l2, optional, not_negative, "Capacity of the second-level cache.");
  f.field("multiprocessors", s.multiprocessors, optional, between(1, 1e5),
          "Streaming multiprocessors; of a CPU cores.");
  if (s.is_cpu() && !s.compute_capability.empty())
    f.problem("compute_capability", "a CPU runs no CUDA", "remove it, or set kind to \"gpu\"");
}

void visit_fields(json::Fields& f, OtherGpus& s) {
  f.list("at", s.at, required, between(0, kMostTorusGpus),
         "Their numbers in the server, from 0; one may stand without brackets.", true);
  f.section_or_name("gpu", s.gpu, required, "As gpu of the server.", scenario::shipped_gpus);
  if (s.at.empty()) f.problem("at", "no GPU is named", "name one, or remove the entry");
}

void visit_fields(json::Fields& f, ServerSpec& s) {
  Intra intra{s};
  Nic nic{s};
  Host host{s};
  f.source({.key = "preset",
            .need = json::optional,
            .about = "A file of configs/servers; fields beside it replace its own.",
            .known = scenario::shipped_servers});
  describe_preset(f);
  f.field("name", s.name, optional, "By which a profile recognises it.");
  f.section_or_name("gpu", s.gpu, required, "A name of configs/gpus, or a description.",
                    scenario::shipped_gpus);
  f.field("gpus", s.gpus, required, between(1, kMostTorusGpus), "GPUs of a server.");
  f.sections("other_gpus", s.other_gpus, optional,
             "Those of them that are not the GPU that gpu says.");
  f.section("intra", intra, required, "Links inside a server.");
  const bool counts_nics =
      f.field("nics", s.nics, optional, between(0, kMostServerNics), "NICs of a server.");
  if (f.section("nic", nic, s.nics > 0 ? required : optional, "One NIC.") && !counts_nics)
    f.problem("nic", "a server has none unless nics says how many", "state nics");
  f.section("host", host, optional, "Processors and PCIe.");
  f.unsupported(
      "nccl_xml",
      "a file of NCCL beside a preset; 'trainyard import server topo.xml' makes a preset");
}

void visit_fields(json::Fields& f, OtherServers& s) {
  f.field("nodes", s.servers, optional, between(1, 1 << 20), "Servers of this kind.");
  f.section_or_name("node", s.server, required, "As node of the cluster.",
                    scenario::shipped_servers);
}

void visit_fields(json::Fields& f, FabricSpec& s) {
  const std::array<FabricSpec, kFabricKinds.size()> kinds = {SingleSwitch{}, FatTree{}, Clos{},
                                                             Dragonfly{}};
  std::size_t kind = s.index();
  f.alternatives({"kind", required, json::anything, "Network between servers."}, kFabricKinds, kind,
                 [&](json::Fields& fields) {
                   if (s.index() != kind) s = kinds[kind];
                   std::visit(
                       [&](auto& fabric) {
                         visit_fields(fields, fabric);
                         fields.choice("routing", fabric.routing, kRoutings, optional,
                                       "Among equal ways: by a hash of the two GPUs, or as the "
                                       "destination's number says (static InfiniBand).");
                       },
                       s);
                 });
}

}  // namespace trainyard::topologies

namespace trainyard::scenario {

void visit_fields(json::Fields& f, ClusterSection& s) {
  f.source({.key = "preset",
            .need = json::optional,
            .about = "A file of configs/clusters; fields beside it replace its own.",
            .known = shipped_clusters});
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
  f.accepted("name", "For people.");
  f.field("nodes", s.spec.servers, json::optional, json::between(1, 1 << 20), "Servers.");
  f.section_or_name("node", s.spec.server, json::required,
                    "A name of configs/servers, or a description of one server.", shipped_servers);
  f.sections("other_nodes", s.spec.others, json::optional,
             "Servers of other kinds, which follow those of node in the order of ranks.");
  f.list("gpus_used", s.spec.gpus_used, json::optional,
         json::between(0, topologies::kMostTorusGpus),
         "GPUs of a server that the job uses, its first ones: a number for all servers, or one for "
         "each; 0: its processors alone. Default: all.",
         true);
  f.section("fabric", s.spec.fabric, json::optional,
            "Network between servers; default: one ideal switch.");
  f.field(
      "calibration", s.calibration, json::optional,
      "Profile: a name of configs/profiles or a path; \"kind\": medians of the fitted GPUs of its "
      "kind; \"none\": datasheets. Default: the GPU's, else \"kind\".");
  f.field("calibration_of_other_gpu", s.calibration_of_other_gpu, json::optional,
          "Accept a profile that was made on another GPU; every estimate is then extrapolated.");
}

}  // namespace trainyard::scenario
