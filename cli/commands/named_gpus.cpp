#include "cli/commands/named_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "cli/exit_code.h"
#include "cli/find_gpu.h"
#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {

using json::Value;
using scenario::Preset;

namespace {

constexpr int kMostGpus = 1 << 20;
// More slots than any server has that is sold.
constexpr int kMostOfOneBox = 16;

std::vector<Preset> presets_of(const std::string& kind) {
  std::vector<Preset> found;
  for (Preset& preset : scenario::list_presets(scenario::configs_folder(".")))
    if (preset.kind == kind) found.push_back(std::move(preset));
  return found;
}

std::string gpu_or_error(const std::string& name) {
  std::string found = gpu_called(name, "--gpus");
  if (!found.empty()) return found;
  throw UsageError(
      fmt::format("--gpus: no GPU is called '{}'; there are {}", escape_control(name),
                  escape_control(fmt::format("{}", fmt::join(gpu_preset_names(), ", ")))));
}

Value read(const Preset& preset) {
  std::vector<Diagnostic> ignored;  // a broken preset is reported when it is used
  return json::parse_file(preset.path, ignored);
}

// The text under a key, or the preset that an object there names.
std::string name_under(const Value& object, const char* key) {
  const Value* value = object.find(key);
  if (value != nullptr && value->is(json::Kind::object)) value = value->find("preset");
  return value != nullptr && value->is(json::Kind::string) ? value->text : "";
}

struct Server {
  std::string name;
  int gpus = 0;
  bool grows = false;  // a box of slots without NICs: more GPUs are in the same one
};

bool is_box_of_slots(const Value& server) {
  const Value* intra = json::find(server, "/intra/kind");
  const Value* nics = server.find("nics");
  return intra != nullptr && (intra->text == "pcie" || intra->text == "none") &&
         (nics == nullptr || json::find_integer(*nics).value_or(0) == 0);
}

// The server that has these GPUs: that of the GPU's maker, else the first by name.
Server find_server(const std::string& gpu) {
  std::vector<Preset> servers = presets_of("server");
  std::stable_partition(servers.begin(), servers.end(),
                        [](const Preset& preset) { return preset.name.starts_with("dgx"); });
  for (const Preset& preset : servers) {
    const Value server = read(preset);
    const Value* count = server.find("gpus");
    if (name_under(server, "gpu") != gpu || count == nullptr) continue;
    return {preset.name, static_cast<int>(json::find_integer(*count).value_or(0)),
            is_box_of_slots(server)};
  }
  throw UsageError(fmt::format("--gpus: no server preset has {}; describe one in a scenario",
                               escape_control(gpu)));
}

// The cluster preset that is made of these servers, if there is one.
std::string find_cluster(const std::string& server) {
  for (const Preset& preset : presets_of("cluster"))
    if (name_under(read(preset), "node") == server) return preset.name;
  return {};
}

Value cluster_of(const Server& server, int count) {
  Value cluster = Value::object();
  if (server.grows && count > server.gpus) {
    Value node = Value::object();
    node.set("preset", Value::of(server.name));
    node.set("gpus", Value::of(count));
    cluster.set("nodes", Value::of(1));
    cluster.set("node", std::move(node));
    return cluster;
  }
  const int servers = (count + server.gpus - 1) / server.gpus;
  const std::string preset = servers > 1 ? find_cluster(server.name) : "";
  if (!preset.empty()) cluster.set("preset", Value::of(preset));
  cluster.set("nodes", Value::of(servers));
  if (preset.empty()) cluster.set("node", Value::of(server.name));
  if (count < server.gpus) cluster.set("gpus_used", Value::of(count));
  return cluster;
}

}  // namespace

NamedGpus named_gpus(const std::string& words) {
  const std::size_t split = words.find_first_of("xX*");
  NamedGpus out;
  const char* end = words.data() + std::min(split, words.size());
  const auto [rest, wrong] = std::from_chars(words.data(), end, out.count);
  const bool is_number = wrong != std::errc::invalid_argument &&
                         std::all_of(rest, end, [](char c) { return c == ' '; });
  const bool is_large = is_number && (wrong != std::errc() || out.count > kMostGpus);
  if (split != std::string::npos && is_large && !words.starts_with('-'))
    throw UsageError(
        fmt::format("--gpus: '{}' are more than {}", escape_control(words), kMostGpus));
  if (split == std::string::npos || !is_number || is_large || out.count < 1)
    throw UsageError(fmt::format("--gpus: expected a count and a name, as 8xh100, got '{}'",
                                 escape_control(words)));
  std::string name = words.substr(split + 1);
  name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
  out.gpu = gpu_or_error(name);
  const Server server = find_server(out.gpu);
  if (server.gpus < 1)
    throw UsageError(fmt::format("--gpus: the server {} has no GPUs", escape_control(server.name)));
  if (server.grows && out.count > kMostOfOneBox)
    throw UsageError(fmt::format(
        "--gpus: {} has no NICs, so all GPUs are of one server: take {} or fewer, or describe "
        "servers with NICs in a scenario (/cluster/node/nics and nic)",
        escape_control(server.name), kMostOfOneBox));
  const int over = out.count % server.gpus;
  if (!server.grows && out.count > server.gpus && over != 0)
    throw UsageError(fmt::format("--gpus: {} has {} GPUs, so take {} or {}",
                                 escape_control(server.name), server.gpus, out.count - over,
                                 out.count - over + server.gpus));
  out.cluster = cluster_of(server, out.count);
  return out;
}

}  // namespace trainyard::cli
