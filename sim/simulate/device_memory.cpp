#include "sim/simulate/device_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sim/base/divide.h"
#include "sim/collective/exchange_buffers.h"
#include "sim/collective/nccl_buffers.h"
#include "sim/lower/group_shape.h"

namespace trainyard::simulate {

using plan::Cast;
using plan::kMemoryKinds;
using plan::MemoryKind;
using plan::Player;

namespace {

constexpr std::int64_t kMillion = 1'000'000;

std::int64_t parts_per_million(double share) {
  return std::llround(share * static_cast<double>(kMillion));
}

// What the ranks of one group send each other, over all connections on which they are a group.
struct Sent {
  bool rings = false, pairs = false;
  // Rows of experts that share their way, and of the largest buffer how many tokens there are.
  models::Routing routed{};
  std::int64_t tokens = 0;

  void add(const Sent& other) {
    rings = rings || other.rings;
    pairs = pairs || other.pairs;
    if (other.routed.experts > 0) routed = other.routed;
    tokens = std::max(tokens, other.tokens);
  }
};

// What a rank has of them. Rows come back in two bytes a number.
std::int64_t tokens_of(const plan::TransferSpec& spec) {
  return divide_up(spec.bytes.count(), 2 * spec.routing.hidden * spec.routing.top_k);
}

Sent sent_on(const std::vector<plan::TransferSpec>& collectives) {
  Sent found;
  for (const plan::TransferSpec& spec : collectives) {
    if (spec.routing.experts > 0) {
      found.add({.routed = spec.routing, .tokens = tokens_of(spec)});
      continue;
    }
    const bool pairs =
        spec.kind == CollectiveKind::all_to_all || spec.kind == CollectiveKind::shift;
    (pairs ? found.pairs : found.rings) = true;
  }
  return found;
}

// The communicators of some players.
class Communicators {
 public:
  Communicators(const Cast& cast, const lower::DevicePlacement& placement)
      : cast_(cast), placement_(placement) {}

  // Bytes in the order of `representatives`, each with so many channels.
  std::vector<Bytes> of(const std::vector<int>& representatives, std::span<const int> channels) {
    std::vector<int> place(cast_.players(), -1);
    for (std::size_t i = 0; i < representatives.size(); ++i)
      place[static_cast<std::size_t>(representatives[i])] = static_cast<int>(i);
    groups_.assign(representatives.size(), {});
    find_pipelines(place);
    for (const plan::Connection& connection : cast_.connections) {
      if (connection.traffic != plan::Traffic::collective) continue;
      const Sent sent = sent_on(connection.transfers);
      for (std::size_t group = 0; group < connection.groups.size(); ++group)
        for (const Player member : connection.groups[group])
          if (const int at = place[index(member)]; at >= 0)
            add(groups_[static_cast<std::size_t>(at)], connection.groups[group], sent);
    }
    std::vector<Bytes> bytes;
    for (std::size_t i = 0; i < representatives.size(); ++i) {
      const auto player = static_cast<Player>(representatives[i]);
      channels_ = channels[i];
      Bytes sum = of_pipeline(player);
      for (const auto& [members, sent] : groups_[i])
        sum = sum + of_group(player, members, sent);
      bytes.push_back(sum);
    }
    return bytes;
  }

 private:
  using Players = std::vector<Player>;
  using Sets = std::map<Players, Sent>;

  static void add(Sets& groups, std::span<const Player> group, const Sent& sent) {
    Players members(group.begin(), group.end());
    std::sort(members.begin(), members.end());
    groups[std::move(members)].add(sent);
  }

  int server(Player player) const { return placement_[index(player)].server; }
  bool spans_servers(const Players& members) const {
    return std::any_of(members.begin(), members.end(),
                       [&](Player member) { return server(member) != server(members.front()); });
  }
  Bytes pairs(Player player, bool spans, const Players& peers) const {
    const auto local = static_cast<int>(std::count_if(
        peers.begin(), peers.end(), [&](Player peer) { return server(peer) == server(player); }));
    return nccl::pairs(channels_, spans, local, static_cast<int>(peers.size()) - local);
  }

  Bytes of_group(Player player, const Players& members, const Sent& sent) const {
    Bytes bytes;
    if (sent.rings) bytes = bytes + nccl::ring(channels_);
    if (sent.routed.experts > 0) bytes = bytes + of_exchange(members, sent);
    if (!sent.pairs) return bytes;
    Players peers = members;
    std::erase(peers, player);
    return bytes + pairs(player, spans_servers(members), peers);
  }

  Bytes of_exchange(const Players& members, const Sent& sent) const {
    std::map<int, int> on_server;
    int most = 0;
    for (const Player member : members)
      most = std::max(most, ++on_server[server(member)]);
    return collective::exchange_buffers({.ranks = static_cast<int>(members.size()),
                                         .per_server = most,
                                         .tokens = sent.tokens,
                                         .hidden = sent.routed.hidden,
                                         .experts = sent.routed.experts});
  }

  // Players that messages join are one communicator: a pipeline.
  void find_pipelines(const std::vector<int>& place) {
    pipeline_.resize(cast_.players());
    std::iota(pipeline_.begin(), pipeline_.end(), std::size_t{0});
    for (const plan::Connection& connection : cast_.connections) {
      if (connection.traffic != plan::Traffic::message || connection.copied) continue;
      for (std::size_t pair = 0; pair < connection.groups.size(); ++pair) {
        const Player from = connection.groups[pair][0], to = connection.groups[pair][1];
        // Processors are spoken with over sockets, which are no communicators.
        if (placement_[index(from)].is_host() || placement_[index(to)].is_host()) continue;
        if (place[index(from)] >= 0) receivers_[from].push_back(to);
        pipeline_[first_of(index(to))] = first_of(index(from));
      }
    }
    across_servers_.assign(cast_.players(), false);
    for (std::size_t p = 0; p < cast_.players(); ++p)
      if (server(static_cast<Player>(p)) != server(static_cast<Player>(first_of(p))))
        across_servers_[first_of(p)] = true;
  }
  std::size_t first_of(std::size_t player) {
    while (pipeline_[player] != player)
      player = pipeline_[player] = pipeline_[pipeline_[player]];
    return player;
  }

  // Stages that neighbour each other send and receive both ways.
  Bytes of_pipeline(Player player) {
    Players peers = receivers_[player];
    if (peers.empty()) return Bytes(0);
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase(peers, player);
    return pairs(player, across_servers_[first_of(index(player))], peers);
  }

  const Cast& cast_;
  const lower::DevicePlacement& placement_;
  int channels_;
  std::vector<Sets> groups_;
  std::vector<std::size_t> pipeline_;    // by player: towards the first of its pipeline
  std::map<Player, Players> receivers_;  // of representatives: whom they send messages
  std::vector<bool> across_servers_;     // by the first player of a pipeline
};

Bytes share_of(Bytes whole, std::int64_t ppm) {
  const std::int64_t bytes = whole.count();
  return Bytes(bytes / kMillion * ppm + bytes % kMillion * ppm / kMillion);
}

}  // namespace

Bytes DeviceMemory::required(Bytes held) const {
  return mapped(held) + share_of(mapped(held), least_fragmentation_ppm) + lost + outside();
}

Bytes DeviceMemory::wanted_but_late(Bytes held) const {
  return mapped(held) + share_of(mapped(held), fragmentation_ppm) + lost + outside();
}

Bytes DeviceMemory::wanted(Bytes held) const {
  return wanted_but_late(held) + (late - lost);
}

bool DeviceMemory::is_tight(Bytes held) const {
  return required(held) <= capacity && wanted(held) > capacity;
}

Bytes DeviceMemory::on_device(Bytes held) const {
  if (capacity == Bytes(0)) return wanted(held);
  return std::max(required(held), std::min(wanted(held), capacity));
}

Bytes DeviceMemory::reserved(Bytes held) const {
  return on_device(held) - outside();
}

Bytes DeviceMemory::waited_for(Bytes held) const {
  return std::max(on_device(held) - wanted_but_late(held), Bytes(0));
}

Bytes DeviceMemory::budget() const {
  if (capacity == Bytes(0)) return Bytes(0);
  // The search goes from a little below to the exact budget, as fragmentation is rounded down.
  const std::int64_t room = (capacity - outside()).count();
  const std::int64_t whole = kMillion + fragmentation_ppm;
  std::int64_t most = room / whole * kMillion + room % whole * kMillion / whole;
  while (wanted_but_late(Bytes(most + 1) - blas_workspace) - lost <= capacity)
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

std::array<DeviceMemory::Part, 4> DeviceMemory::parts(Bytes held) const {
  return {{{MemoryKind::workspace, "cuBLAS workspace", blas_workspace},
           {MemoryKind::fragmentation, "fragmentation", reserved(held) - allocated(held)},
           {MemoryKind::nccl_buffers, "NCCL buffers", nccl_buffers},
           {MemoryKind::context, "CUDA context", context}}};
}

std::vector<Bytes> nccl_buffers(const Cast& cast, const lower::DevicePlacement& placement,
                                std::span<const lower::RankClass> classes,
                                std::span<const int> channels) {
  std::vector<int> representatives;
  for (const lower::RankClass& rank_class : classes)
    representatives.push_back(rank_class.representative);
  return Communicators(cast, placement).of(representatives, channels);
}

std::vector<DeviceMemory> device_memory(const Cast& cast, const lower::DevicePlacement& placement,
                                        std::span<const lower::RankClass> classes,
                                        const topologies::ClusterSpec& cluster,
                                        const recipe::MemoryAllowance& allowance,
                                        std::span<const int> channels) {
  DeviceMemory common;
  common.blas_workspace = allowance.blas_workspace;
  common.context = allowance.context;
  common.fragmentation_ppm = parts_per_million(allowance.fragmentation);
  common.least_fragmentation_ppm = parts_per_million(allowance.least_fragmentation);
  std::vector<DeviceMemory> devices;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(cluster);
  const bool has_gpus =
      std::any_of(kinds.begin(), kinds.end(),
                  [](const topologies::GpuKind& kind) { return !kind.gpu->is_cpu(); });
  for (const lower::RankClass& own : classes) {
    if (placement[static_cast<std::size_t>(own.representative)].is_host()) {
      devices.emplace_back();  // no GPU to fill
      continue;
    }
    const topologies::GpuSpec& gpu = *kinds[static_cast<std::size_t>(own.gpu_kind)].gpu;
    // What is said of all is said of GPUs, where there are any.
    DeviceMemory device = gpu.is_cpu() && has_gpus ? DeviceMemory() : common;
    device.capacity = gpu.memory;
    devices.push_back(device);
  }
  if (!allowance.nccl_buffers) return devices;
  std::vector<int> own_channels;
  for (const lower::RankClass& own : classes) {
    const auto kind = static_cast<std::size_t>(own.gpu_kind);
    // Links of a torus move bytes without NCCL, and NCCL takes no channels there.
    const int usual =
        kinds[kind].gpu->is_cpu() ? 0 : lower::default_channels(kinds[kind].server->intra);
    own_channels.push_back(usual > 0 && channels[kind] > 0 ? channels[kind] : usual);
  }
  const std::vector<Bytes> buffers = nccl_buffers(cast, placement, classes, own_channels);
  for (std::size_t c = 0; c < devices.size(); ++c)
    devices[c].nccl_buffers = own_channels[c] > 0 ? buffers[c] : Bytes(0);
  return devices;
}

}  // namespace trainyard::simulate
