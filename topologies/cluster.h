// The parts of a cluster as a scenario describes them. Bandwidths are per direction.
// What becomes of each number in the graph: docs/topologies.md.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/step_time.h"
#include "sim/base/units.h"

namespace trainyard::topologies {

// How hot a GPU becomes: temperatures follow the power that it draws with one time constant.
// Source: docs/guide/monitor.md, "Temperature". Degrees Celsius.
struct Cooling {
  double inlet = 0, busy = 0;  // of what cools it; of the GPU after it drew its busy power for long
  Duration time_constant{};
  std::optional<double> limit;  // at which the driver lowers clocks
  bool throttle = false;        // and whether that is simulated

  // Where it settles at a power. Requires: busy_power above 0.
  double settled(Watts power, Watts busy_power) const {
    return inlet + (busy - inlet) * (power.count() / busy_power.count());
  }
};

// What runs kernels. A CPU launches them itself, one after another, works in the memory of its
// host, and its multiprocessors are cores.
enum class ProcessorKind : std::uint8_t { gpu, cpu };

// What large products were measured to reach, in shares of the datasheet peak of their
// type; 0: not measured. Boards for games may reach more than 1.
struct SustainedShares {
  double fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0;
};

// A device of a server: a GPU (or TPU), or its processors taken as one.
struct GpuSpec {
  std::string name;                // "a100-sxm4-80gb"
  std::string compute_capability;  // of CUDA, "8.0"; may be empty
  FlopsPerSecond fp32, tf32, fp16, bf16,
      fp8;  // dense datasheet peaks; 0: the chip has no such unit
  SustainedShares sustained;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  BytesPerSecond pcie_bandwidth;  // of its slot; 0: not stated
  Bytes l2;
  int multiprocessors = 1;
  ProcessorKind kind = ProcessorKind::gpu;
  bool is_cpu() const { return kind == ProcessorKind::cpu; }
  // Of compute_capability, what stands before its point; 0 without one.
  int capability_major() const { return std::atoi(compute_capability.c_str()); }
  Watts idle_power, busy_power;  // of the board: no kernel runs, one does; 0: not known
  Watts power_limit;             // set below busy_power; 0: as it is
  // While such kernels run, or communication moves and no kernel runs; 0: busy, busy, idle.
  Watts attention_power, memory_bound_power, communication_power;
  std::optional<Cooling> cooling;  // empty: not known
};

// How the GPUs of one server reach each other. none: over PCIe too, but without peer-to-peer
// copies, so that every byte is written to the host's memory and read back.
// torus: through each other, in a grid.
enum class IntraKind : std::uint8_t { nvswitch, nvlink_mesh, pcie, none, torus };
constexpr bool joins_by_pcie(IntraKind kind) {
  return kind == IntraKind::pcie || kind == IntraKind::none;
}

struct NvlinkPair {
  int a = 0, b = 0, links = 1;
};

// The sizes multiply to the number of GPUs, whose numbers count the last dimension first (torus.h).
struct TorusGrid {
  std::vector<int> sizes;
  bool closed = true;  // each dimension of three or more is a ring, else a line
};

// GPUs of a server that are not as its others.
struct OtherGpus {
  std::vector<int> at;  // their numbers in the server
  GpuSpec gpu;
};

struct ServerSpec {
  std::string name;  // "dgx-a100-80gb"; the name by which a profile recognises it
  GpuSpec gpu;
  int gpus = 1;                       // all of them
  std::vector<OtherGpus> other_gpus;  // those that are not `gpu`
  IntraKind intra = IntraKind::nvswitch;
  // nvswitch: per GPU; nvlink_mesh, torus: per link; pcie: per x16 slot
  BytesPerSecond intra_bandwidth;
  Duration intra_latency{};
  std::vector<NvlinkPair> mesh;     // nvlink_mesh only
  TorusGrid torus;                  // torus only
  BytesPerSecond pcie_bandwidth;    // GPU or NIC to its host bridge; 0: not stated
  BytesPerSecond socket_bandwidth;  // between two host bridges; 0: not stated, not a limit
  int sockets = 1;                  // host bridges, over which GPUs and NICs are spread in order
  int gpus_per_pcie_switch = 1;     // neighbours that share one link to their host bridge
  int host_cores = 0;               // of all its processors; 0: not stated, not a limit
  Bytes host_memory;                // 0: not stated, not a limit
  BytesPerSecond host_memory_bandwidth;  // reads and writes together; 0: not stated
  Bytes nvme_capacity;                   // 0: not stated, not a limit
  BytesPerSecond nvme_read_bandwidth, nvme_write_bandwidth;  // of all drives; 0: not stated
  double host_launch_factor =
      1;  // host times over those of an x86 server, on which they are measured
  int nics = 0;
  BytesPerSecond nic_bandwidth;
  Duration nic_latency{};     // of one NIC; a message crosses two
  bool rail_per_gpu = true;   // true: nearest NIC, GPU * nics / gpus; false: GPU mod nics
  double nic_efficiency = 1;  // reachable share of line rate
  // Of a collective between servers. Steps: by size, of rings, trees (empty: as rings) and
  // all-to-alls (empty: as rings).
  std::optional<Duration> nic_start;  // empty: as inside a server
  std::vector<StepTime> nic_steps, nic_tree_steps, nic_exchange_steps;
  double nic_exchange_efficiency = 1;  // share of a ring's bandwidth that an all-to-all reaches

  // Which of its kinds a GPU is: 0 for `gpu`, k for other_gpus[k - 1]. Requires: of the server.
  int gpu_kind(int local) const;
  const GpuSpec& gpu_of_kind(int kind) const {
    return kind == 0 ? gpu : other_gpus[static_cast<std::size_t>(kind - 1)].gpu;
  }
  const GpuSpec& gpu_at(int local) const { return gpu_of_kind(gpu_kind(local)); }
};

// How a route chooses among equal switches and cables. The same pair always takes the same way.
enum class Routing : std::uint8_t {
  ecmp,     // by a hash of (source GPU, destination GPU)
  d_mod_k,  // the destination NIC's number modulo the ways, its quotient at the next choice
};

struct SingleSwitch {
  Duration switch_latency{};
  Routing routing = Routing::ecmp;
};

// Leaves, spines (and cores with three tiers). oversubscription[i] is down : up capacity of tier i.
struct FatTree {
  int tiers = 2;
  int radix = 64;                        // ports of a switch
  std::vector<double> oversubscription;  // one per tier below the top; missing ones are 1
  Duration switch_latency{};
  Routing routing = Routing::ecmp;
};

// Levels of growing size, named as operators do (rack, pod, spine).
struct ClosLevel {
  std::string name;
  int gpus = 1;                 // under one switch group of this level
  double oversubscription = 1;  // of the links into this level from the level below
  Duration latency{};           // of one switch of this level
};
struct Clos {
  std::vector<ClosLevel> levels;
  Routing routing = Routing::ecmp;
};

// Groups of routers that are all joined to each other by local links; groups all joined by global
// ones (dragonfly.h).
struct Dragonfly {
  int nics_per_router = 1, routers_per_group = 1;
  int global_links = 0;                              // of a router
  BytesPerSecond local_bandwidth, global_bandwidth;  // of one link; 0: as the fastest NIC
  Duration switch_latency{};
  Duration global_latency{};  // of a global cable, beside the router behind it
  Routing routing = Routing::ecmp;
};

using FabricSpec = std::variant<SingleSwitch, FatTree, Clos, Dragonfly>;

// Servers of another kind, which follow those before them.
struct OtherServers {
  int servers = 1;
  ServerSpec server;
};

struct ClusterSpec {
  int servers = 1;  // of all kinds
  ServerSpec server;
  FabricSpec fabric = SingleSwitch{};
  std::vector<int> gpus_used{};  // of each server its first ones; empty: all GPUs of all servers
  std::vector<OtherServers> others{};  // the last ones, which are not `server`

  // Kinds of servers: 0 for `server`, k for others[k - 1].
  int kinds() const { return 1 + static_cast<int>(others.size()); }
  int kind_of(int number) const;  // Requires: a server of the cluster
  const ServerSpec& server_of_kind(int kind) const {
    return kind == 0 ? server : others[static_cast<std::size_t>(kind - 1)].server;
  }
  const ServerSpec& server_at(int number) const { return server_of_kind(kind_of(number)); }

  // The most that a server has. GPU g of server s has the number s * gpu_slots() + g, and so with
  // NICs, so that a number says where its GPU sits; a smaller server leaves numbers out.
  int gpu_slots() const;
  int fewest_gpus() const;  // of a server
  int nic_slots() const;

  int used_on(int at) const {
    return gpus_used.empty() ? server_at(at).gpus : gpus_used[static_cast<std::size_t>(at)];
  }
  std::int64_t gpus_in_use() const;
};

// The kinds of GPUs of a cluster, from 0, which is ClusterSpec::server.gpu. Those of two kinds of
// servers are of different kinds, even if they have the same name.
struct GpuKind {
  const ServerSpec* server = nullptr;
  const GpuSpec* gpu = nullptr;
};
std::vector<GpuKind> gpu_kinds(const ClusterSpec& cluster);
inline constexpr int kMostGpuKinds = 64;
GpuSpec& gpu_of_kind(ClusterSpec& cluster, int kind);
// By kind, whether a GPU of it is among ClusterSpec::gpus_used, and those of which there is one.
std::vector<bool> gpu_kinds_used(const ClusterSpec& cluster);
std::vector<GpuKind> gpu_kinds_in_use(const ClusterSpec& cluster);
// Of those in use that of the lowest compute capability, whose kernels all can run; the first of
// equals. Chips that are no CUDA devices are younger than all that are.
const GpuSpec& oldest_gpu(const ClusterSpec& cluster);
// The fewest GPUs of a server of which the job uses any.
int fewest_gpus_in_use(const ClusterSpec& cluster);
// Requires: a GPU of a server of the cluster.
int gpu_kind_of(const ClusterSpec& cluster, int server, int local);

// "4 x rtx-3090, 2 x rtx-2080-ti": GPUs in use, and servers; of one name that alone.
std::string gpus_in_words(const ClusterSpec& cluster);
// What those in use are: "GPU", "CPU", or of both kinds "device".
std::string device_in_a_word(const ClusterSpec& cluster);
std::string servers_in_words(const ClusterSpec& cluster);

}  // namespace trainyard::topologies
