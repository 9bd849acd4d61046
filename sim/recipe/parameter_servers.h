// How parameters are divided among servers of their own and when those update: what a scenario
// says under /parallelism/data_parallel of kind parameter_server.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/option.h"

namespace trainyard::recipe {

// What a shard keeps: an even part of every layer (as ps-lite cuts large arrays), or whole layers,
// each next one where least is (size), in turn (round_robin, TensorFlow's default), or where its
// name says (hash). Source: ps-lite, kvstore_dist.h (EncodeDefaultKey); TensorFlow,
// python/training/device_setter.py.
enum class Sharding : std::uint8_t { even, size, round_robin, hash };
inline constexpr std::array<std::string_view, 4> kShardingNames = {"even", "size", "round_robin",
                                                                   "hash"};

// When a gradient updates the parameters: with those of all ranks; as it comes, without waiting for
// anybody; as it comes, by ranks of which none is more than `staleness` steps ahead of another.
// Source: Dean et al., NIPS 2012 (Downpour SGD); Ho et al., NIPS 2013 (stale synchronous parallel).
enum class ServerUpdates : std::uint8_t { synchronous, asynchronous, stale };
inline constexpr std::array<std::string_view, 3> kServerUpdateNames = {"synchronous",
                                                                       "asynchronous", "stale"};

// Whose memory shards are in: that of servers' processors, or of the ranks' own GPUs, which have an
// even shard each. Source: tf_cnn_benchmarks, local_parameter_device.
enum class ServerDevice : std::uint8_t { cpu, gpu };
inline constexpr std::array<std::string_view, 2> kServerDeviceNames = {"cpu", "gpu"};

struct ParameterServers {
  Option<ServerDevice> device = ServerDevice::cpu;
  std::vector<int> servers;         // of the cluster, on whose processors the shards sit in turn
  Option<int> shards = depends(1);  // default: one on each of the servers
  Option<Sharding> sharding = Sharding::even;
  Option<ServerUpdates> updates = ServerUpdates::synchronous;
  Option<int> staleness = depends(0);  // stale: steps that a rank may be ahead
  // synchronous: of all ranks the last so many to push in a step, whose gradients are dropped.
  // Source: Chen et al., Revisiting Distributed Synchronous SGD, ICLR workshop 2016.
  Option<int> backup_workers = 0;
  // synchronous: so many neighbouring ranks sum their gradients first, and each pushes and pulls
  // its part of them. Source: tf_cnn_benchmarks, variable_mgr.py (distributed_replicated); Jiang et
  // al., BytePS, OSDI 2020.
  Option<int> summed_ranks = 1;
  // Each layer's gradients are pushed when its backward pass is done, and not all at the end.
  Option<bool> push_by_layer = false;

  int server_of(int shard) const {
    return servers.empty() ? 0 : servers[static_cast<std::size_t>(shard) % servers.size()];
  }
};
inline constexpr int kMostShards = 64;

}  // namespace trainyard::recipe
