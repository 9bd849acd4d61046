// /parallelism/data_parallel of kind parameter_server: what its shards go with, on processors and
// on the ranks' own GPUs.
#include <fmt/format.h>

#include <string>

#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

namespace {

constexpr const char* kReplicas = "/parallelism/data_parallel";

// What the server's machine must have.
void check_servers(const topologies::ClusterSpec& cluster, const std::vector<int>& numbers,
                   Findings& findings) {
  for (const int number : numbers)
    if (number >= cluster.servers)
      findings.error(fmt::format("{}/server", kReplicas),
                     fmt::format("there is no server {}: the cluster has {}, numbered from 0",
                                 number, cluster.servers),
                     fmt::format("name one up to {}", cluster.servers - 1));
  require_of_hosts(cluster, "memory_bandwidth", states_memory_bandwidth,
                   "the parameter server sums gradients and updates parameters at it", findings);
  require_of_hosts(cluster, "pcie_bandwidth", states_pcie_bandwidth,
                   "GPUs reach the parameter server on their own server over PCIe", findings);
}

constexpr int kMostRanksOfServer = 1024;
// Of ranks that do not wait: the time to simulate them grows with more than their square.
constexpr int kMostExchanges = 512;

// Ranks at their own pace, and pieces by layer.
void check_server_updates(const Scenario& scenario, Findings& findings) {
  const recipe::ParameterServers& servers = scenario.plan.data_parallel.parameter_servers;
  const bool pipeline = scenario.plan.degrees.pipeline > 1;
  const auto error = [&](const char* key, std::string_view what, std::string_view cure) {
    findings.error(fmt::format("{}/{}", kReplicas, key), std::string(what), std::string(cure));
  };
  if (servers.push_by_layer && pipeline)
    error("push_by_layer", "is described for a network that is not divided into stages",
          "remove it, or set pp to 1");
  const bool stale = servers.updates == recipe::ServerUpdates::stale;
  if (stale && !servers.staleness.is_said())
    error("staleness", "is required and missing for stale updates", "0 lets no rank be ahead");
  if (!stale && servers.staleness.is_said())
    error("staleness", "only stale updates have a bound", "remove it, or set updates to \"stale\"");
  if (servers.servers.size() > static_cast<std::size_t>(servers.shards))
    error("server",
          fmt::format("{} servers for {} shard{}", servers.servers.size(), servers.shards.value(),
                      servers.shards == 1 ? "" : "s"),
          "name no more servers than there are shards");
  if (servers.shards > 1 && servers.sharding != recipe::Sharding::even &&
      scenario.fidelity != recipe::Fidelity::flow)
    findings.error("/simulation/fidelity",
                   "shards of whole layers are not equally large, which closed forms do not know",
                   "set it to \"flow\", or sharding to \"even\"");
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  const bool waits = servers.updates == recipe::ServerUpdates::synchronous;
  const int backup = servers.backup_workers;
  if (degrees.replicas() == 1) {
    const bool said = !servers.servers.empty() || servers.shards.is_said() || !waits ||
                      backup > 0 || servers.push_by_layer || servers.summed_ranks != 1;
    if (said)
      findings.warning(fmt::format("{}/kind", kReplicas),
                       "dp is 1, so one rank updates its own parameters and there is no server");
    return;
  }
  if (backup > 0 && !waits)
    error("backup_workers", "only synchronous updates wait for anybody", "remove it");
  else if (backup >= degrees.data)
    error("backup_workers",
          fmt::format("of {} ranks at most {} can be left out", degrees.data, degrees.data - 1),
          "lower it");
  if (const int summed = servers.summed_ranks; summed > 1) {
    if (!waits || backup > 0)
      error("summed_ranks", "only ranks that all wait for each other sum their gradients",
            "remove it, or updates and backup_workers");
    if (degrees.data % summed != 0)
      error("summed_ranks", fmt::format("{} does not divide dp {}", summed, degrees.data),
            "state the ranks of a server that differ in data parallelism alone");
    if (degrees.context > 1)
      error("summed_ranks", "is described for ranks that share no sequence", "set cp to 1");
  }
  if (waits && backup == 0) return;
  if (degrees.data != degrees.world_size())
    error(waits ? "backup_workers" : "updates",
          "ranks that do not wait for all are described for data parallelism alone",
          "set pp, tp and cp to 1, or wait for all");
  if (degrees.world_size() * servers.shards > kMostExchanges)
    error("shards",
          fmt::format("{} ranks with {} shards each are more than {} exchanges",
                      degrees.world_size(), servers.shards.value(), kMostExchanges),
          "use fewer shards");
  if (scenario.fidelity != recipe::Fidelity::flow)
    findings.error("/simulation/fidelity",
                   "ranks that do not wait for all share the server's links as they come, which "
                   "closed forms do not know",
                   "set it to \"flow\"");
}

// What means something to servers of their own alone.
void check_servers_on_gpus(const Scenario& scenario, Findings& findings) {
  const recipe::ParameterServers& servers = scenario.plan.data_parallel.parameter_servers;
  if (scenario.plan.degrees.replicas() == 1)
    findings.warning(fmt::format("{}/kind", kReplicas),
                     "dp is 1, so one rank updates its own parameters and there is no server");
  const auto refuse = [&](bool said, const char* key) {
    if (said)
      findings.error(fmt::format("{}/{}", kReplicas, key),
                     "each rank's GPU has an even shard, and all wait for all",
                     "remove it, or set device to \"cpu\"");
  };
  refuse(!servers.servers.empty(), "server");
  refuse(servers.shards.is_said(), "shards");
  refuse(servers.sharding != recipe::Sharding::even, "sharding");
  refuse(servers.updates != recipe::ServerUpdates::synchronous, "updates");
  refuse(servers.staleness.is_said(), "staleness");
  refuse(servers.backup_workers > 0, "backup_workers");
  refuse(servers.summed_ranks != 1, "summed_ranks");
  if (servers.push_by_layer && scenario.plan.degrees.pipeline > 1)
    findings.error(fmt::format("{}/push_by_layer", kReplicas),
                   "is described for a network that is not divided into stages",
                   "remove it, or set pp to 1");
  if (const int ranks = scenario.plan.degrees.replicas(); ranks > recipe::kMostShards)
    findings.error(
        fmt::format("{}/kind", kReplicas),
        fmt::format("{} replicas would each send to all others, at most {} are described", ranks,
                    recipe::kMostShards),
        "use zero1, which divides the same by collectives");
}

}  // namespace

void validate_parameter_server(const Scenario& scenario, Findings& findings) {
  const bool on_gpus =
      scenario.plan.data_parallel.parameter_servers.device == recipe::ServerDevice::gpu;
  if (on_gpus)
    check_servers_on_gpus(scenario, findings);
  else
    check_server_updates(scenario, findings);
  if (scenario.plan.degrees.replicas() == 1) return;
  const std::string kind = fmt::format("{}/kind", kReplicas);
  const auto* transformer = scenario.network.find<models::Transformer>();
  if (transformer != nullptr && transformer->moe.experts > 0)
    findings.error(kind, "a parameter server of routed experts is not described",
                   "use allreduce, or a dense network");
  if (scenario.network.is<models::Recommender>())
    findings.error(kind, "a parameter server of embedding tables is not described",
                   "use allreduce, which leaves tables where they are");
  if (const int ranks = scenario.plan.degrees.world_size(); ranks > kMostRanksOfServer)
    findings.error(kind,
                   fmt::format("{} ranks would push to one server, at most {} are described", ranks,
                               kMostRanksOfServer),
                   "use allreduce");
  if (scenario.recipe.offload.any())
    findings.error("/training/offload", "the host's memory is described for the parameter server",
                   "remove it, or use another kind of data parallelism");
  if (on_gpus) return;
  if (scenario.recipe.gradient_clipping)
    findings.error("/training/gradient_clipping",
                   "the parameter server updates with the sum as it is", "set it to false");
  check_servers(scenario.cluster, scenario.plan.data_parallel.parameter_servers.servers, findings);
}

}  // namespace trainyard::scenario
