// One document read completely, and one that is read many times with changes.
#pragma once

#include <memory>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

struct Loaded {
  Scenario scenario;
  ScenarioSections sections;
  std::vector<Diagnostic> diagnostics;  // errors and warnings
};

bool is_error(const Diagnostic& diagnostic);
bool has_errors(const std::vector<Diagnostic>& diagnostics);

// Whether a list has a diagnostic of the same place and words.
bool contains(const std::vector<Diagnostic>& list, const Diagnostic& diagnostic);

// The place of a pointer's value, or of the nearest object around it.
Position locate(const json::Value& document, std::string pointer);

// The fields of a document whose presets are expanded.
ScenarioSections read_sections(const json::Value& document, std::vector<Diagnostic>& diagnostics);

// Reads a document in which bases and --set are merged, with its other jobs.
Loaded load_document(json::Value document, const Places& places);

// Reads a document whose presets are expanded, and adds to what was found in doing so. Its other
// jobs are not read. `known`: its network and machine, if they were read before and nothing was to
// be said of them.
Loaded load_expanded(json::Value document, const Places& places,
                     std::vector<Diagnostic> diagnostics,
                     std::shared_ptr<const NetworkAndMachine> known = nullptr);

// What is wrong with the jobs of a scenario together, at its places.
// `configs`: its folder of presets.
void judge_other_jobs(Loaded& loaded, const std::string& configs);

// A document and merge patches (RFC 7396) on it. What a patch leaves alone is read once: presets,
// the network, the machine, software; so a patch of degrees takes a tenth of the time of a file.
class ChangedDocument {
 public:
  // `plain`: as load_document takes it, without variants.
  ChangedDocument(json::Value plain, Places places);

  // As load_document reads the document with the patch. May be called from several threads at once.
  Loaded with(const json::Value& patch) const;

 private:
  json::Value plain_;
  Places places_;
  json::Value expanded_;                                // with presets, without habits
  std::shared_ptr<const NetworkAndMachine> unchanged_;  // null: every patch is read from the start
};

}  // namespace trainyard::scenario
