#include "topologies/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/base/check.h"

namespace trainyard::topologies {

int ServerSpec::gpu_kind(int local) const {
  for (std::size_t k = 0; k < other_gpus.size(); ++k) {
    const std::vector<int>& at = other_gpus[k].at;
    if (std::find(at.begin(), at.end(), local) != at.end()) return static_cast<int>(k) + 1;
  }
  return 0;
}

int ClusterSpec::kind_of(int number) const {
  TRAINYARD_CHECK(0 <= number && number < servers, "server {} of {}", number, servers);
  int first = servers;
  for (int kind = kinds() - 1; kind > 0; --kind) {
    first -= others[static_cast<std::size_t>(kind - 1)].servers;
    if (number >= first) return kind;
  }
  return 0;
}

int ClusterSpec::gpu_slots() const {
  int most = server.gpus;
  for (const OtherServers& other : others)
    most = std::max(most, other.server.gpus);
  return most;
}

int ClusterSpec::fewest_gpus() const {
  int fewest = server.gpus;
  for (const OtherServers& other : others)
    fewest = std::min(fewest, other.server.gpus);
  return fewest;
}

int ClusterSpec::nic_slots() const {
  int most = server.nics;
  for (const OtherServers& other : others)
    most = std::max(most, other.server.nics);
  return most;
}

std::int64_t ClusterSpec::gpus_in_use() const {
  std::int64_t sum = 0;
  for (const int used : gpus_used)
    sum += used;
  if (!gpus_used.empty()) return sum;
  int alike = servers;
  for (const OtherServers& other : others) {
    sum += std::int64_t{other.servers} * other.server.gpus;
    alike -= other.servers;
  }
  return sum + std::int64_t{alike} * server.gpus;
}

std::vector<GpuKind> gpu_kinds(const ClusterSpec& cluster) {
  std::vector<GpuKind> kinds;
  for (int kind = 0; kind < cluster.kinds(); ++kind) {
    const ServerSpec& server = cluster.server_of_kind(kind);
    for (std::size_t gpu = 0; gpu <= server.other_gpus.size(); ++gpu)
      kinds.push_back({&server, &server.gpu_of_kind(static_cast<int>(gpu))});
  }
  return kinds;
}

int gpu_kind_of(const ClusterSpec& cluster, int server, int local) {
  const int kind = cluster.kind_of(server);
  int before = 0;
  for (int k = 0; k < kind; ++k)
    before += 1 + static_cast<int>(cluster.server_of_kind(k).other_gpus.size());
  return before + cluster.server_of_kind(kind).gpu_kind(local);
}

GpuSpec& gpu_of_kind(ClusterSpec& cluster, int kind) {
  ServerSpec* server = &cluster.server;
  for (OtherServers& other : cluster.others) {
    const int own = 1 + static_cast<int>(server->other_gpus.size());
    if (kind < own) break;
    kind -= own;
    server = &other.server;
  }
  return kind == 0 ? server->gpu : server->other_gpus.at(static_cast<std::size_t>(kind - 1)).gpu;
}

std::vector<bool> gpu_kinds_used(const ClusterSpec& cluster) {
  std::vector<bool> used(gpu_kinds(cluster).size());
  if (used.size() == 1) return {true};
  for (int server = 0; server < cluster.servers; ++server)
    for (int gpu = 0; gpu < cluster.used_on(server); ++gpu)
      used[static_cast<std::size_t>(gpu_kind_of(cluster, server, gpu))] = true;
  return used;
}

std::vector<GpuKind> gpu_kinds_in_use(const ClusterSpec& cluster) {
  const std::vector<GpuKind> kinds = gpu_kinds(cluster);
  const std::vector<bool> used = gpu_kinds_used(cluster);
  std::vector<GpuKind> found;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    if (used[kind]) found.push_back(kinds[kind]);
  return found;
}

const GpuSpec& oldest_gpu(const ClusterSpec& cluster) {
  const auto capability = [](const GpuSpec& gpu) {
    const std::string& text = gpu.compute_capability;
    double number = std::numeric_limits<double>::infinity();
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  };
  const std::vector<GpuKind> kinds = gpu_kinds_in_use(cluster);
  const GpuSpec* oldest = kinds.empty() ? &cluster.server.gpu : kinds.front().gpu;
  for (const GpuKind& kind : kinds)
    if (capability(*kind.gpu) < capability(*oldest)) oldest = kind.gpu;
  return *oldest;
}

int fewest_gpus_in_use(const ClusterSpec& cluster) {
  int fewest = cluster.gpu_slots();
  for (int server = 0; server < cluster.servers; ++server)
    if (cluster.used_on(server) > 0) fewest = std::min(fewest, cluster.server_at(server).gpus);
  return fewest;
}

namespace {

using Counts = std::vector<std::pair<std::string, int>>;  // in the order in which they were met

void count(Counts& counts, const std::string& name) {
  for (auto& [known, times] : counts)
    if (known == name) {
      ++times;
      return;
    }
  counts.emplace_back(name, 1);
}

std::string in_words(const Counts& counts) {
  if (counts.size() == 1) return counts.front().first;
  std::string words;
  for (const auto& [name, times] : counts)
    words += fmt::format("{}{} x {}", words.empty() ? "" : ", ", times, name);
  return words;
}

}  // namespace

std::string gpus_in_words(const ClusterSpec& cluster) {
  if (gpu_kinds(cluster).size() == 1) return cluster.server.gpu.name;
  Counts counts;
  for (int server = 0; server < cluster.servers; ++server)
    for (int gpu = 0; gpu < cluster.used_on(server); ++gpu)
      count(counts, cluster.server_at(server).gpu_at(gpu).name);
  return in_words(counts);
}

std::string device_in_a_word(const ClusterSpec& cluster) {
  bool cpus = false, gpus = false;
  for (const GpuKind& kind : gpu_kinds_in_use(cluster))
    (kind.gpu->is_cpu() ? cpus : gpus) = true;
  return !cpus ? "GPU" : !gpus ? "CPU" : "device";
}

std::string servers_in_words(const ClusterSpec& cluster) {
  if (cluster.kinds() == 1) return cluster.server.name;
  Counts counts;
  for (int server = 0; server < cluster.servers; ++server)
    count(counts, cluster.server_at(server).name);
  return in_words(counts);
}

}  // namespace trainyard::topologies
