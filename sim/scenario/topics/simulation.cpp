// /simulation and /perturbations: how a step is simulated, and who is slow in it.
#include <fmt/format.h>

#include <algorithm>

#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using recipe::Fidelity;
using recipe::Straggler;

namespace {

using json::at_least;
using json::Choice;
using json::optional;
using json::required;

constexpr std::array<Choice<Fidelity>, 2> kFidelities = {
    {{"closed_form", Fidelity::closed_form}, {"flow", Fidelity::flow}}};

}  // namespace

void visit_fields(json::Fields& f, StragglerSelect& s) {
  f.field("rank", s.rank, at_least(0), "A rank.");
  f.field("node", s.node, at_least(0), "All ranks of a server.");
  f.unsupported("link", "a slow link; select rank or node");
  f.unsupported("fraction", "random stragglers; select rank or node");
}

void visit_fields(json::Fields& f, StragglerSection& s) {
  f.section("select", s.select, required, "Who is slow: exactly one of rank and node.");
  f.field("compute_slowdown", s.compute_slowdown, required, json::Bounds{0, 1e6, true},
          "Kernels take this many times as long.");
  f.field("reason", s.reason, optional, "For people.");
  f.unsupported("bandwidth_factor", "a slow link; compute_slowdown is available");
  f.unsupported("added_latency", "a slow link; compute_slowdown is available");
  f.unsupported("from", "a straggler for part of the step; it is slow from start to end");
  f.unsupported("until", "a straggler for part of the step; it is slow from start to end");
}

void visit_fields(json::Fields& f, JitterSection& s) {
  f.field("cv", s.cv, optional, json::between(0, 0.2),
          "Standard deviation between GPUs of the time of the same work, in parts of that time.");
  f.unsupported("distribution", "another distribution than the normal one", {"\"normal\""});
}

void visit_fields(json::Fields& f, PerturbationsSection& s) {
  f.sections("stragglers", s.stragglers, optional, "Slow ranks or servers.");
  f.section("compute_jitter", s.compute_jitter, optional,
            "GPUs that are not equally fast: all of a job wait for the slowest of them.");
  f.unsupported("network_jitter", "jitter of the network; compute_jitter is available");
  f.unsupported("failures", "simulating failures; stragglers are available");
}

void visit_fields(json::Fields& f, SimulationSection& s) {
  f.not_yet({"step", "layer", "op", "packet"});
  f.choice("fidelity", s.fidelity, kFidelities, optional,
           "closed_form: each message by its law; flow: messages share the links they meet on.");
  f.field("seed", s.seed, optional, "Of everything random.");
  f.field("exploit_symmetry", s.exploit_symmetry, optional,
          "One rank stands for all that behave alike; the result is the same.");
  f.field("exploit_periodicity", s.exploit_periodicity, optional,
          "Micro-batches that repeat what the ones before did are not simulated one by one, unless "
          "a timeline is asked for; the result is the same.");
  f.unsupported("iterations", "more than one step; every step is alike", {"1"});
  f.unsupported("warmup_iterations", "warm-up steps; every step is alike", {"0"});
  f.unsupported("goodput_horizon", "goodput under failures");
  f.unsupported("max_events", "a limit of events");
}

namespace {

int first_rank_on(const topologies::ClusterSpec& cluster, int server) {
  int first = 0;
  for (int before = 0; before < server; ++before)
    first += cluster.used_on(before);
  return first;
}

}  // namespace

void assemble_stragglers(Scenario& scenario, const PerturbationsSection& section,
                         Findings& findings) {
  const int ranks = scenario.plan.degrees.world_size();
  for (std::size_t i = 0; i < section.stragglers.size(); ++i) {
    const StragglerSection& straggler = section.stragglers[i];
    const std::string pointer = fmt::format("/perturbations/stragglers/{}/select", i);
    const StragglerSelect& select = straggler.select;
    if (select.rank.has_value() == select.node.has_value()) {
      findings.error(pointer, "expected exactly one of rank and node");
      continue;
    }
    if (select.rank && *select.rank >= ranks) {
      findings.error(pointer + "/rank",
                     fmt::format("rank {} of {} (0 to {})", *select.rank, ranks, ranks - 1));
      continue;
    }
    if (select.node && *select.node >= scenario.cluster.servers) {
      findings.error(pointer + "/node",
                     fmt::format("server {} of {} (0 to {})", *select.node,
                                 scenario.cluster.servers, scenario.cluster.servers - 1));
      continue;
    }
    const int first = select.rank ? *select.rank : first_rank_on(scenario.cluster, *select.node);
    const int count = select.rank ? 1 : scenario.cluster.used_on(*select.node);
    for (int rank = first; rank < first + count && rank < ranks; ++rank) {
      const bool twice = std::any_of(scenario.stragglers.begin(), scenario.stragglers.end(),
                                     [&](const Straggler& other) { return other.rank == rank; });
      if (twice) {
        findings.error(pointer, fmt::format("rank {} is slowed twice", rank));
        break;
      }
      scenario.stragglers.push_back({rank, straggler.compute_slowdown});
    }
  }
  std::sort(scenario.stragglers.begin(), scenario.stragglers.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
}

}  // namespace trainyard::scenario
