// Where a job runs: the tables of /cluster.
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using topologies::IntraKind;

namespace {

using json::at_least;
using json::between;
using json::Choice;
using json::not_negative;
using json::optional;
using json::positive;
using json::required;

constexpr std::array<Choice<IntraKind>, 4> kIntraKinds = {{{"nvswitch", IntraKind::nvswitch},
                                                           {"nvlink_mesh", IntraKind::nvlink_mesh},
                                                           {"pcie", IntraKind::pcie},
                                                           {"none", IntraKind::none}}};
constexpr std::array<Choice<bool>, 2> kRails = {{{"gpu", true}, {"none", false}}};
constexpr std::array<std::string_view, 3> kFabricKinds = {"single_switch", "fat_tree", "clos"};

struct PeakSection {
  topologies::GpuSpec& spec;
};
void visit_fields(json::Fields& f, PeakSection& s) {
  constexpr std::string_view kAbout = "Dense datasheet peak; absent: the chip has no such unit.";
  f.field("fp32", s.spec.fp32, optional, not_negative, kAbout);
  f.field("tf32", s.spec.tf32, optional, not_negative, kAbout);
  f.field("fp16", s.spec.fp16, optional, not_negative, kAbout);
  f.field("bf16", s.spec.bf16, optional, not_negative, kAbout);
  f.field("fp8", s.spec.fp8, optional, not_negative, kAbout);
}

void describe_preset(json::Fields& f) {
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
}

}  // namespace

void visit_fields(json::Fields& f, GpuSection& s) {
  f.source("preset", "A file of configs/gpus; fields beside it replace its own.");
  describe_preset(f);
  topologies::GpuSpec& gpu = s.spec;
  f.field("name", gpu.name, optional, "By which a profile recognises it.");
  f.accepted("device_names", "As drivers call it, by which a measurement finds the preset.");
  f.field("compute_capability", gpu.compute_capability, optional,
          "Of CUDA: GPUs of the same one stand in for each other.");
  f.field("memory", gpu.memory, required, positive, "Capacity of device memory.");
  f.field("memory_bandwidth", gpu.memory_bandwidth, required, positive, "Of device memory.");
  PeakSection peak{gpu};
  f.section("peak", peak, required, "Compute rates by number format, without sparsity.");
  f.field("l2", gpu.l2, optional, not_negative, "Capacity of the second-level cache.");
  f.field("multiprocessors", gpu.multiprocessors, optional, between(1, 1e5),
          "Streaming multiprocessors.");
}

void visit_fields(json::Fields& f, IntraSection& s) {
  f.choice("kind", s.kind, kIntraKinds, required, "How the GPUs of a server reach each other.");
  f.field("bandwidth_per_gpu", s.bandwidth, optional, positive,
          "Per direction: of a GPU (nvswitch), of a link (nvlink_mesh), of a slot (pcie).");
  f.field("latency", s.latency, optional, "Of one hop.");
  f.sections("mesh", s.mesh, optional, "Linked pairs of an nvlink_mesh.");
}

void visit_fields(json::Fields& f, NicSection& s) {
  f.field("bandwidth", s.bandwidth, required, positive, "Line rate, per direction.");
  f.field("latency", s.latency, optional, "Of the NIC.");
  f.choice("rail", s.rail_per_gpu, kRails, optional, "gpu: NIC i belongs to GPU i.");
  f.field("efficiency", s.efficiency, optional, json::ratio, "Reachable share of the line rate.");
}

void visit_fields(json::Fields& f, HostSection& s) {
  f.field("pcie_bandwidth", s.pcie_bandwidth, optional, positive, "GPU or NIC to its host bridge.");
  f.field("socket_bandwidth", s.socket_bandwidth, optional, positive, "Between two sockets.");
  f.field("sockets", s.sockets, optional, between(1, 64), "Processors.");
  f.field("gpus_per_pcie_switch", s.gpus_per_pcie_switch, optional, between(1, 4096),
          "Neighbouring GPUs that share one link of pcie_bandwidth to the host.");
  f.field("memory", s.memory, optional, positive, "Of the server; what is offloaded must fit.");
  f.field("memory_bandwidth", s.memory_bandwidth, optional, positive,
          "Of the host's memory, reads and writes together, over all sockets.");
  f.field("nvme_capacity", s.nvme_capacity, optional, positive, "Of all drives of the server.");
  f.field("nvme_read_bandwidth", s.nvme_read_bandwidth, optional, positive,
          "Of all drives together.");
  f.field("nvme_write_bandwidth", s.nvme_write_bandwidth, optional, positive,
          "Of all drives together.");
}

void visit_fields(json::Fields& f, ServerSection& s) {
  f.source("preset", "A file of configs/servers; fields beside it replace its own.");
  describe_preset(f);
  f.field("name", s.name, optional, "By which a profile recognises it.");
  f.section_or_name("gpu", s.gpu, required, "A name of configs/gpus, or a description.");
  f.field("gpus", s.gpus, required, between(1, 4096), "GPUs of a server.");
  f.section("intra", s.intra, required, "Links inside a server.");
  f.field("nics", s.nics, optional, between(0, 4096), "NICs of a server.");
  f.section("nic", s.nic, s.nics > 0 ? required : optional, "One NIC.");
  f.section("host", s.host, optional, "Processors and PCIe.");
  f.unsupported("nccl_xml", "a server from NCCL's topology dump; describe it");
}

void visit_fields(json::Fields& f, FabricSection& s) {
  f.alternatives(
      {"kind", required, json::anything, "Network between servers."}, kFabricKinds, s.kind,
      [&s](json::Fields& fields) {
        if (s.kind == 2) {
          fields.sections("levels", s.clos.levels, required, "From the servers upwards.");
        } else if (s.kind == 1) {
          fields.field("tiers", s.fat_tree.tiers, optional, between(2, 3), "Layers of switches.");
          fields.field("radix", s.fat_tree.radix, optional, between(2, 4096), "Ports of a switch.");
          fields.list("oversubscription", s.fat_tree.oversubscription, optional, at_least(1),
                      "Down to up capacity per tier; absent ones are 1.");
          fields.field("switch_latency", s.fat_tree.switch_latency, optional, "Of a switch.");
        } else {
          fields.field("switch_latency", s.single_switch.switch_latency, optional,
                       "Of the switch.");
        }
        fields.unsupported("routing", "a choice of routing; paths are chosen by hash",
                           {"\"ecmp\""});
      });
}

void visit_fields(json::Fields& f, ClusterSection& s) {
  f.source("preset", "A file of configs/clusters; fields beside it replace its own.");
  describe_preset(f);
  f.accepted("name", "For people.");
  f.field("nodes", s.nodes, required, between(1, 1 << 20), "Servers.");
  f.section_or_name("node", s.node, required, "One server.");
  f.section("fabric", s.fabric, optional, "Network between servers; default: one ideal switch.");
  f.field(
      "calibration", s.calibration, optional,
      "Profile: a name of configs/profiles or a path; \"none\": datasheets. Default: the GPU's.");
  f.field("calibration_of_other_gpu", s.calibration_of_other_gpu, optional,
          "Accept a profile that was made on another GPU; every estimate is then extrapolated.");
}

}  // namespace trainyard::scenario

namespace trainyard::topologies {

void visit_fields(json::Fields& f, NvlinkPair& s) {
  f.field("a", s.a, json::required, json::at_least(0), "GPU of the server.");
  f.field("b", s.b, json::required, json::at_least(0), "GPU of the server.");
  f.field("links", s.links, json::optional, json::at_least(1), "Parallel links.");
}

void visit_fields(json::Fields& f, ClosLevel& s) {
  f.field("name", s.name, json::required, "rack, pod, spine, ...");
  f.field("gpus", s.gpus, json::required, json::between(1, 1 << 24),
          "Under one group of switches of this level.");
  f.field("oversubscription", s.oversubscription, json::optional, json::at_least(1),
          "Down to up capacity.");
  f.field("latency", s.latency, json::optional, "Of one switch.");
}

}  // namespace trainyard::topologies
