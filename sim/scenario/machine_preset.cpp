// A machine by the name of its preset, read as /cluster of a scenario that has nothing else.
#include <algorithm>

#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/assemble.h"
#include "topologies/cluster_check.h"

namespace trainyard::scenario {

using json::Value;

namespace {

bool has(const std::string& configs, const std::string& folder, const std::string& name) {
  const std::vector<std::string> names = preset_names(configs, folder);
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value preset_object(const std::string& name) {
  Value object = Value::object();
  object.set("preset", Value::of(name));
  return object;
}

// The machine of /cluster, with all diagnostics; nothing after an error.
std::optional<Machine> read_machine(Value cluster, const std::string& configs,
                                    std::vector<Diagnostic>& diagnostics) {
  Value document = Value::object();
  document.set("cluster", std::move(cluster));
  const Places places{configs, ""};
  expand_presets(document, places, diagnostics);
  ClusterSection section;
  json::read_object(*document.find("cluster"), "/cluster", section, diagnostics);
  if (!diagnostics.empty()) return std::nullopt;
  Findings findings;
  Machine machine = assemble_machine(section, document, places, findings);
  for (Diagnostic& diagnostic : topologies::check(machine.cluster))
    findings.found.push_back(std::move(diagnostic));
  const bool wrong = findings.has_errors();
  diagnostics = std::move(findings.found);
  return wrong ? std::nullopt : std::optional<Machine>(std::move(machine));
}

// What stands in no file is of the name that was asked for.
Machine machine_of(Value cluster, const std::string& configs, const std::string& name) {
  std::vector<Diagnostic> found;
  std::optional<Machine> machine = read_machine(std::move(cluster), configs, found);
  if (machine) return std::move(*machine);
  for (Diagnostic& diagnostic : found)
    if (diagnostic.at.file.empty()) diagnostic.at.file = name;
  throw ScenarioError(std::move(found));
}

}  // namespace

std::optional<Machine> machine_of_preset(const std::string& configs, const std::string& name,
                                         int servers) {
  Value cluster = preset_object(name);
  if (!has(configs, "clusters", name)) {
    if (!has(configs, "servers", name)) return std::nullopt;
    cluster = Value::object();
    cluster.set("node", preset_object(name));
    servers = std::max(1, servers);
  }
  if (servers > 0) cluster.set("nodes", Value::of(std::int64_t{servers}));
  return machine_of(std::move(cluster), configs, name);
}

Machine machine_of_file(const std::string& configs, const std::string& path, int servers) {
  std::vector<Diagnostic> found;
  Value file = json::parse_file(path, found);
  if (!found.empty()) throw ScenarioError(std::move(found));
  Value whole = Value::object();
  if (const Value* base = file.find("extends"))
    throw ScenarioError(
        {{Severity::error, base->at.position(), "/extends", "a machine is read from one file",
          "name that of the cluster or the server"}});
  if (const Value* stated = file.find("cluster")) {
    whole.set("cluster", *stated);
  } else {
    Value described = Value::object();
    described.set("nodes", Value::of(std::int64_t{std::max(1, servers)}));
    described.set("node", std::move(file));
    whole.set("cluster", std::move(described));
  }
  spell_out_names(whole);
  Value& cluster = *whole.find("cluster");
  if (servers > 0 && cluster.is(json::Kind::object)) {
    if (const Value* others = cluster.find("other_nodes"))
      throw ScenarioError(
          {{Severity::error, others->at.position(), "/cluster/other_nodes",
            "servers of several kinds have numbers of their own", "leave --servers out"}});
    cluster.set("nodes", Value::of(std::int64_t{servers}));
  }
  return machine_of(std::move(cluster), configs, path);
}

std::vector<Diagnostic> check_server_preset(const std::string& configs, std::string_view text,
                                            const std::string& file) {
  std::vector<Diagnostic> found;
  Value node = json::parse_text(text, file, found);
  if (!found.empty()) return found;
  Value cluster = Value::object();
  cluster.set("nodes", Value::of(std::int64_t{1}));
  cluster.set("node", std::move(node));
  Value whole = Value::object();
  whole.set("cluster", std::move(cluster));
  spell_out_names(whole);
  read_machine(std::move(*whole.find("cluster")), configs, found);
  return found;
}

}  // namespace trainyard::scenario
