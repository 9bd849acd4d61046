// From measured steps to what the simulator says of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/validation/records.h"
#include "sim/validation/scores.h"

namespace trainyard::validation {

struct Prediction {
  double seconds = 0;  // of a step; of one that does not fit, what it would take with enough memory
  bool fits = true;
  bool is_tight = false;  // as of MemoryReport
  struct Memory {
    double allocated = 0, reserved = 0, device = 0;  // bytes at the peak
  };
  Memory fullest, rank_0;
  std::size_t scenario = 0;  // of the record's, the one that was predicted

  double memory(const MeasuredMemory& measured) const;
};

struct PredictOptions {
  std::string root;      // as of LoadOptions
  std::string software;  // of scenarios that name none; empty: none
};

// Of the record's scenarios, the fastest that fits, at best with room; `problems` gets why others
// cannot be simulated to their end. Their pointers are those of the record's file. Throws
// ScenarioError if none can be.
Prediction predict(const RecordSet& set, const Record& record, const PredictOptions& options,
                   std::vector<Diagnostic>& problems);

struct PredictedRecord {
  Record record;  // without its scenarios
  Prediction prediction;

  std::optional<Pair> seconds() const;  // nothing where it was not measured
  std::optional<Pair> memory() const;   // bytes
};

struct PredictedSet {
  std::string name, source, license;
  std::vector<PredictedRecord> rows;
  std::size_t left_out = 0;    // records that are wrong or cannot be simulated
  std::size_t unmeasured = 0;  // as of RecordSet
};

struct SetScore {
  std::optional<ErrorScore> time, memory;
  std::optional<double> rank_correlation;  // of step times
  std::optional<Regret> regret;            // of the groups
  Verdicts verdicts;
};
SetScore score_of(const PredictedSet& set);

// All rows as one set, its choices still those of each.
SetScore score_of_all(std::span<const PredictedSet> sets);

// Of step times, each set a source of score_sources().
std::optional<ErrorScore> score_of_steps(std::span<const PredictedSet> sets);

}  // namespace trainyard::validation
