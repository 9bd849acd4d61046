// What a scenario says beside its topics: collectives, references, variants and outputs, and the
// table of the whole.
#include "sim/scenario/topics/sections.h"

#include "sim/json/schema.h"
#include "sim/scenario/sources.h"

namespace trainyard::scenario {

namespace {

using json::anything;
using json::between;
using json::optional;
using json::required;

constexpr std::array<std::string_view, 8> kMetrics = {"step_time",
                                                      "mfu",
                                                      "model_tflops_per_gpu",
                                                      "full_square.mfu",
                                                      "full_square.model_tflops_per_gpu",
                                                      "gpu_hours",
                                                      "allocated_memory",
                                                      "reserved_memory"};

}  // namespace
}  // namespace trainyard::scenario

namespace trainyard::recipe {

void visit_fields(json::Fields& f, Ownership& s) {
  f.field("server", s.server, json::required, json::positive,
          "Dollars to buy one, with its share of the network.");
  f.field("years", s.years, json::required, json::between(0.1, 50),
          "After which it is worth nothing.");
  f.field("utilisation", s.utilisation, json::required, json::ratio,
          "Share of those years during which it trains.");
  f.field("kilowatt_hour", s.kilowatt_hour, json::required, json::not_negative,
          "Dollars for a kilowatt-hour of electricity.");
  f.field("pue", s.pue, json::optional, json::between(1, 10),
          "Power of the site over that of the servers; default: the mean of the industry (Uptime "
          "Institute's survey of 2023).");
  f.field("host_power", s.host_power, json::optional, json::not_negative,
          "Of a server beside its GPUs while it trains.");
  f.field("yearly", s.yearly, json::optional, json::not_negative,
          "Dollars a year for hosting and the staff of one server.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

void visit_fields(json::Fields& f, ReferenceSection& s) {
  f.field("label", s.label, required, "What the number is and where it stands.");
  f.name("metric", s.metric, kMetrics, optional,
         "As reports name it: step_time (s), mfu, model_tflops_per_gpu, the last two also as "
         "full_square.mfu and full_square.model_tflops_per_gpu (as PaLM and Megatron-LM count), "
         "gpu_hours, allocated_memory or reserved_memory (GiB, of the fullest GPU).");
  f.field("value", s.value, anything, "In the metric's unit.");
  f.name("status", s.status, std::array<std::string_view, 2>{"verified", "to_verify"}, optional,
         "Whether the number was checked against its source.");
}

void visit_fields(json::Fields& f, CostSection& s) {
  f.field("gpu_hour", s.gpu_hour, json::positive, "Dollars for one GPU and hour.");
  f.field("server_hour", s.server_hour, json::positive, "The same for a server with all its GPUs.");
  f.section("own", s.own, "Servers of one's own, to compare with rented ones.");
}

void visit_fields(json::Fields& f, VariantSection& s) {
  f.field("name", s.name, required, "Short name, unique in the file.");
  f.field("label", s.label, optional, "For people.");
  f.accepted("with",
             "Merge patch (RFC 7396) on this scenario; null removes, arrays are replaced. Absent: "
             "no change.",
             true);
}

void visit_fields(json::Fields& f, OutputsSection& s) {
  f.field("directory", s.directory, optional,
          "Where reports go unless the command line says otherwise.");
  for (const std::string_view key : {"report", "trace", "summary", "table", "chakra"})
    f.unsupported(key, "naming single outputs; give a directory");
}

void visit_fields(json::Fields& f, ScenarioSections& s) {
  f.accepted("$schema", "For editors.");
  f.field("version", s.version, required, between(1, 1), "Of this format: 1.");
  f.field("name", s.name, required, "Short name of the scenario.");
  f.field("label", s.label, optional, "For people; default: the name.");
  f.field("description", s.description, optional, "For people.");
  f.source({.key = "extends",
            .need = json::optional,
            .about = "Base file or files, merged before this one (RFC 7396)."});
  f.sections("references", s.references, optional, "Published numbers to compare with.");
  f.section("model", s.model, required, "What is trained.");
  f.section("cluster", s.cluster, required, "Where it runs.");
  f.field("software", s.software, optional, shipped_software,
          "A file of configs/software: what the framework does where this scenario says nothing.");
  f.section("training", s.training, required, "How it is trained.");
  f.section("parallelism", s.parallelism, optional, "How the work is divided.");
  f.section("collectives", s.collectives, optional, "How GPUs communicate.");
  f.section("perturbations", s.perturbations, optional, "What goes wrong.");
  f.section("simulation", s.simulation, optional, "How it is simulated.");
  f.section("cost", s.cost, optional, "What the training costs, if /training says how long it is.");
  f.field("baseline", s.baseline, optional, "The variant that others are compared with.");
  f.sections("variants", s.variants, optional, "Changes to this scenario, compared side by side.");
  f.unsupported("sweep", "a sweep; list variants, or write a search");
  f.sections("other_jobs", s.other_jobs, optional,
             "Jobs on other GPUs of the cluster, which train beside this one and share its links. "
             "Needs simulation.fidelity flow.");
  f.section("search", s.search, optional,
            "What 'trainyard search' varies and what it looks for (docs/search.md).");
  f.section("outputs", s.outputs, optional, "What is written.");
}

json::KeyIndex scenario_keys() {
  return json::keys_of([](json::Fields& f) {
    ScenarioSections sections;
    visit_fields(f, sections);
  });
}

}  // namespace trainyard::scenario
