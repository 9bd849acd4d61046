#include "sim/simulate/device_memory.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/collective/nccl_buffers.h"
#include "sim/plan/pipeline_messages.h"

namespace trainyard::simulate {

using plan::kMemoryKinds;
using plan::MemoryKind;
using plan::StepPlan;
using recipe::Axis;
using recipe::RankGrids;
using topologies::IntraKind;

namespace {

constexpr std::int64_t kMillion = 1'000'000;

// NCCL's rings per kind of connection. Source: its own log on DGX A100 and HGX H100 ("24 coll
// channels"), DGX-1V (12) and PCIe servers (one ring, doubled).
int default_channels(IntraKind intra) {
  switch (intra) {
    case IntraKind::nvswitch: return 24;
    case IntraKind::nvlink_mesh: return 12;
    case IntraKind::pcie:
    case IntraKind::none: return 2;
  }
  return 2;
}

// What the ranks of one group send each other, over all ports on which they are a group.
struct Traffic {
  bool rings = false, pairs = false;
};

Traffic traffic(const std::vector<plan::CollectiveSpec>& collectives) {
  Traffic found;
  for (const plan::CollectiveSpec& spec : collectives) {
    const bool pairs =
        spec.kind == CollectiveKind::all_to_all || spec.kind == CollectiveKind::shift;
    (pairs ? found.pairs : found.rings) = true;
  }
  return found;
}

// The communicators of some ranks.
class Communicators {
 public:
  Communicators(const StepPlan& plan, const RankGrids& ranks, int gpus_per_server, int channels)
      : plan_(plan), ranks_(ranks), gpus_(gpus_per_server), channels_(channels) {}

  // Bytes in the order of `representatives`.
  std::vector<Bytes> of(const std::vector<int>& representatives) {
    std::vector<int> place(static_cast<std::size_t>(ranks_.dense.world_size()), -1);
    for (std::size_t i = 0; i < representatives.size(); ++i)
      place[static_cast<std::size_t>(representatives[i])] = static_cast<int>(i);
    groups_.assign(representatives.size(), {});
    for (std::size_t port = 0; port < plan::kCollectivePorts; ++port) {
      if (plan_.collectives[port].empty()) continue;
      const Traffic sent = traffic(plan_.collectives[port]);
      for (const auto& group : groups_of(plan_, ranks_, static_cast<plan::CollectivePort>(port)))
        for (const Rank member : group)
          if (const int at = place[index(member)]; at >= 0)
            add(groups_[static_cast<std::size_t>(at)], group, sent);
    }
    std::vector<Bytes> bytes;
    for (std::size_t i = 0; i < representatives.size(); ++i) {
      const auto rank = static_cast<Rank>(representatives[i]);
      Bytes sum = of_pipeline(rank);
      for (const auto& [members, sent] : groups_[i])
        sum = sum + of_group(rank, members, sent);
      bytes.push_back(sum);
    }
    return bytes;
  }

 private:
  using Groups = std::map<std::vector<Rank>, Traffic>;

  static void add(Groups& groups, std::vector<Rank> members, const Traffic& sent) {
    std::sort(members.begin(), members.end());
    Traffic& all = groups[std::move(members)];
    all.rings = all.rings || sent.rings;
    all.pairs = all.pairs || sent.pairs;
  }

  int server(Rank rank) const { return static_cast<int>(index(rank)) / gpus_; }
  bool spans_servers(const std::vector<Rank>& members) const {
    return std::any_of(members.begin(), members.end(),
                       [&](Rank member) { return server(member) != server(members.front()); });
  }
  Bytes pairs(Rank rank, const std::vector<Rank>& members, const std::vector<Rank>& peers) const {
    const auto local = static_cast<int>(std::count_if(
        peers.begin(), peers.end(), [&](Rank peer) { return server(peer) == server(rank); }));
    return nccl::pairs(channels_, spans_servers(members), local,
                       static_cast<int>(peers.size()) - local);
  }

  Bytes of_group(Rank rank, const std::vector<Rank>& members, const Traffic& sent) const {
    Bytes bytes;
    if (sent.rings) bytes = bytes + nccl::ring(channels_);
    if (!sent.pairs) return bytes;
    std::vector<Rank> peers = members;
    std::erase(peers, rank);
    return bytes + pairs(rank, members, peers);
  }

  // Stages that neighbour each other send and receive both ways.
  Bytes of_pipeline(Rank rank) const {
    if (plan_.shape.stages == 1) return Bytes(0);
    std::vector<Rank> peers;
    for (const plan::ChannelPort port : plan::kSendPorts)
      if (const auto stage =
              receiver(plan_.shape, port, ranks_.dense.coordinate(rank, Axis::pipeline)))
        peers.push_back(ranks_.dense.peer(rank, Axis::pipeline, *stage));
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase(peers, rank);
    return pairs(rank, ranks_.dense.group(rank, Axis::pipeline), peers);
  }

  const StepPlan& plan_;
  const RankGrids& ranks_;
  int gpus_, channels_;
  std::vector<Groups> groups_;
};

}  // namespace

Bytes DeviceMemory::fragmentation(Bytes allocated) const {
  const std::int64_t bytes = allocated.count();
  return Bytes(bytes / kMillion * fragmentation_ppm +
               bytes % kMillion * fragmentation_ppm / kMillion);
}

Bytes DeviceMemory::reserved(Bytes held) const {
  return allocated(held) + fragmentation(allocated(held));
}

Bytes DeviceMemory::on_device(Bytes held) const {
  return reserved(held) + nccl_buffers + context;
}

Bytes DeviceMemory::budget() const {
  if (capacity == Bytes(0)) return Bytes(0);
  // The search goes from a little below to the exact budget, as fragmentation is rounded down.
  const std::int64_t room = (capacity - nccl_buffers - context).count();
  const std::int64_t whole = kMillion + fragmentation_ppm;
  std::int64_t most = room / whole * kMillion + room % whole * kMillion / whole;
  while (on_device(Bytes(most + 1) - blas_workspace) <= capacity)
    ++most;
  return std::max(Bytes(most) - blas_workspace, Bytes(1));
}

std::array<std::int64_t, kMemoryKinds> DeviceMemory::by_category(
    const std::array<std::int64_t, engine::kMaxCategories>& held) const {
  std::array<std::int64_t, kMemoryKinds> bytes{};
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    bytes[k] = held[k];
    sum += held[k];
  }
  for (const Part& part : parts(Bytes(sum)))
    bytes[static_cast<std::size_t>(part.category)] += part.bytes.count();
  return bytes;
}

std::vector<DeviceMemory::Part> DeviceMemory::parts(Bytes held) const {
  return {{MemoryKind::workspace, "cuBLAS workspace", blas_workspace},
          {MemoryKind::fragmentation, "fragmentation", fragmentation(allocated(held))},
          {MemoryKind::nccl_buffers, "NCCL buffers", nccl_buffers},
          {MemoryKind::context, "CUDA context", context}};
}

std::vector<Bytes> nccl_buffers(const StepPlan& plan, const RankGrids& ranks,
                                const lower::Lowered& lowered, int gpus_per_server, int channels) {
  std::vector<int> representatives;
  for (const lower::RankClass& rank_class : lowered.classes)
    representatives.push_back(rank_class.representative);
  return Communicators(plan, ranks, gpus_per_server, channels).of(representatives);
}

std::vector<DeviceMemory> device_memory(const StepPlan& plan, const RankGrids& ranks,
                                        const lower::Lowered& lowered,
                                        const topologies::ClusterSpec& cluster,
                                        const recipe::MemoryAllowance& allowance, int channels) {
  const topologies::ServerSpec& server = cluster.server;
  DeviceMemory common;
  common.capacity = server.gpu.memory;
  common.blas_workspace = allowance.blas_workspace;
  common.context = allowance.context;
  common.fragmentation_ppm = std::llround(allowance.fragmentation * static_cast<double>(kMillion));
  std::vector<DeviceMemory> devices(lowered.classes.size(), common);
  if (!allowance.nccl_buffers) return devices;
  const std::vector<Bytes> buffers = nccl_buffers(
      plan, ranks, lowered, server.gpus, channels > 0 ? channels : default_channels(server.intra));
  for (std::size_t c = 0; c < devices.size(); ++c)
    devices[c].nccl_buffers = buffers[c];
  return devices;
}

}  // namespace trainyard::simulate
