#include "sim/scenario/other_jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/json/fields.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/sources.h"
#include "topologies/cluster_check.h"

namespace trainyard::scenario {

using json::Kind;
using json::Value;

void visit_fields(json::Fields& f, OtherJobSection& s) {
  f.field("name", s.name, json::required, "Short name, unique among the jobs.");
  f.list("gpus_used", s.gpus_used, json::required, json::between(0, topologies::kMostTorusGpus),
         "GPUs of each server that the job uses, as in /cluster; on a server they follow those of "
         "the jobs before it.",
         true);
  f.accepted("with",
             "Merge patch (RFC 7396) on this scenario, as in a variant: what that job trains and "
             "how. Absent: the same job once more.",
             true);
}

namespace {

// Of the scenario's own job, or of what is written about it.
constexpr std::array<const char*, 8> kOwn = {"other_jobs", "variants", "baseline",      "outputs",
                                             "references", "cost",     "perturbations", "$schema"};
// What all jobs share.
constexpr std::array<const char*, 15> kShared = {
    "$schema", "version",  "name",        "label",      "description",
    "extends", "cluster",  "collectives", "cost",       "simulation",
    "outputs", "variants", "baseline",    "references", "perturbations"};

}  // namespace

std::optional<Value> document_of_job(const Value& scenario, std::size_t at,
                                     std::vector<Diagnostic>& diagnostics) {
  const Value& job = scenario.find("other_jobs")->items[at];
  const std::string pointer = fmt::format("/other_jobs/{}/with", at);
  Value document = Value::object();
  document.at = scenario.at;
  for (const json::Member& member : scenario.members)
    if (std::find(kOwn.begin(), kOwn.end(), member.key) == kOwn.end())
      document.members.push_back(member);
  if (const Value* with = job.find("with")) {
    const auto refuse = [&](const json::Place& place, std::string message) {
      diagnostics.push_back({Severity::error, place.position(), pointer, std::move(message), ""});
    };
    if (!with->is(Kind::object)) {
      refuse(with->at, fmt::format("expected an object, got {}", json::quoted(*with)));
      return std::nullopt;
    }
    const std::size_t before = diagnostics.size();
    for (const char* key : kShared)
      if (const json::Member* member = with->find_member(key))
        refuse(member->at, fmt::format("another job cannot have a \"{}\" of its own", key));
    if (const json::Member* member = with->find_member("other_jobs"))
      refuse(member->at, "another job has no other jobs; list them beside it");
    if (diagnostics.size() > before) return std::nullopt;
    Value patch = *with;
    spell_out_names(patch);
    json::merge_patch(document, patch);
  }
  if (Value* cluster = document.find("cluster")) cluster->set("gpus_used", *job.find("gpus_used"));
  document.set("name", *job.find("name"));
  return document;
}

namespace {

// More GPUs of a server than it has, or two jobs on one of unlike GPUs.
void check_servers(const Scenario& scenario, Findings& findings) {
  const topologies::ClusterSpec& cluster = scenario.cluster;
  for (int server = 0; server < cluster.servers; ++server) {
    const topologies::ServerSpec& spec = cluster.server_at(server);
    int used = cluster.used_on(server);
    for (std::size_t at = 0; at < scenario.other_jobs.size(); ++at) {
      const int more = scenario.other_jobs[at].scenario.cluster.used_on(server);
      if (more == 0) continue;
      const std::string pointer = fmt::format("/other_jobs/{}/gpus_used", at);
      if (used + more > spec.gpus)
        return findings.error(
            pointer,
            fmt::format("server {} has {} GPUs; the jobs before take {} and \"{}\" {} more", server,
                        spec.gpus, used, scenario.other_jobs[at].name, more),
            "say in cluster.gpus_used and in each job's gpus_used which it takes: [8, 0] and "
            "[0, 8], for instance");
      if (used > 0 && !spec.other_gpus.empty())
        return findings.error(
            pointer,
            fmt::format("server {} has GPUs of several kinds and two jobs, which is not described",
                        server),
            "give the jobs servers of their own");
      used += more;
    }
  }
}

}  // namespace

void validate_other_jobs(const Scenario& scenario, Findings& findings) {
  if (scenario.other_jobs.empty()) return;
  if (scenario.fidelity != recipe::Fidelity::flow)
    findings.error("/other_jobs", "jobs share links with simulation.fidelity flow alone",
                   "set simulation.fidelity to \"flow\"");
  for (std::size_t at = 0; at < scenario.other_jobs.size(); ++at) {
    const OtherJob& other = scenario.other_jobs[at];
    const std::string pointer = fmt::format("/other_jobs/{}", at);
    const auto same = [&](const OtherJob& one) { return one.name == other.name; };
    const auto first = std::find_if(scenario.other_jobs.begin(), scenario.other_jobs.end(), same);
    if (other.name == scenario.name)
      findings.error(pointer + "/name",
                     fmt::format("the scenario's own job is called \"{}\"", other.name));
    if (&*first != &other)
      findings.error(pointer + "/name", fmt::format("two jobs are called \"{}\"", other.name));
    const plan::Rounds rounds = plan::rounds_of(other.scenario.recipe, other.scenario.plan);
    if (rounds.count == 1) continue;
    const char* why = rounds.apart   ? "its ranks do not wait for each other"
                      : rounds.whole ? "it has an input pipeline"
                                     : "its pipeline is not flushed";
    findings.error(pointer + "/with",
                   fmt::format("\"{}\" cannot train beside another job: {}", other.name, why),
                   "make it the scenario's own job, and the other one the job beside it");
  }
  if (!findings.has_errors()) check_servers(scenario, findings);
}

}  // namespace trainyard::scenario
