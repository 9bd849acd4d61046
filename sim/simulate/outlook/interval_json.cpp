// configs/accuracy/steps.json, which ./dev validate --write makes.
#include "sim/base/diagnostic.h"
#include "sim/json/fields.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/simulate/outlook/interval.h"

namespace trainyard::simulate {

void visit_fields(json::Fields& f, StepError& s) {
  f.field("set", s.set, json::required, "A file of configs/validation.");
  f.accepted("step", "Its row there.");
  f.field("network", s.of.network, json::required, "Its kind.");
  f.field("profile", s.of.profile, json::required, "There is a profile of its GPU.");
  f.field("one_server", s.of.one_server, json::required, "It ran on one server.");
  f.field("error", s.error, json::required, json::Bounds{-0.99, 100, false},
          "Predicted / measured - 1.");
}

namespace {

struct Source {
  std::string set, source;
};

struct ErrorFile {
  std::string description, command, program;
  std::vector<Source> sources;
  std::vector<StepError> steps;
};

void visit_fields(json::Fields& f, Source& s) {
  f.field("set", s.set, json::required, "A file of configs/validation.");
  f.field("source", s.source, json::required, "Who measured, and where it is published.");
}

void visit_fields(json::Fields& f, ErrorFile& s) {
  f.field("description", s.description, json::required, "What this is.");
  f.field("command", s.command, json::required, "That wrote it.");
  f.field("program", s.program, json::required, "That predicted.");
  f.sections("sources", s.sources, json::required, "Of what was measured.");
  f.sections("steps", s.steps, json::required, "One published step each.");
}

}  // namespace

std::vector<StepError> read_errors(const std::string& path) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_file(path, diagnostics);
  ErrorFile file;
  if (diagnostics.empty()) json::read_object(document, "", file, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics)
    if (diagnostic.severity == Severity::error) throw ScenarioError(std::move(diagnostics));
  return std::move(file.steps);
}

}  // namespace trainyard::simulate
