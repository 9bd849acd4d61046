// Measured training steps with the scenarios that say what was measured. The format is that of
// docs/proof.md: a file of records, or a scenario whose variants each have one reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"

namespace trainyard::validation {

// Which of the three sums of a device's memory was measured (sim/simulate/device_memory.h).
enum class MemorySum : std::uint8_t { allocated, reserved, device };

struct MeasuredMemory {
  MemorySum sum = MemorySum::reserved;
  double bytes = 0;
  bool of_rank_0 = false;  // else of the fullest device
};

// A part of a scenario: it is merged into what the records of the file have in common.
struct ScenarioPatch {
  json::Value patch;    // an object
  std::string pointer;  // at which it stands in its file: "/records/3/scenario"
};

struct Record {
  std::string name;
  std::string group;  // records of one group are alternatives for one job; empty: of no choice
  std::optional<double> seconds;  // of a step
  std::optional<MeasuredMemory> memory;
  std::optional<bool> fits;  // false: it ran out of memory; nothing: the machine was another one
  // Of several, which differ in what the source leaves open, the fastest that fits is predicted.
  std::vector<ScenarioPatch> scenarios;
  Position at;
  std::string pointer;
};

struct RecordSet {
  std::string name;             // of the file, without folder and ending
  std::string source, license;  // as the file states them; may be empty
  std::string file;
  json::Value base;          // an object
  std::string base_pointer;  // at which it stands in the file
  std::vector<Record> records;
  std::size_t unmeasured = 0;  // records that say that nothing was measured
  // Records that are left out, each for one mistake or more; of a file that cannot be read all
  // mistakes.
  std::size_t wrong = 0;
};

// The records of a file. What is wrong, and with it the record, is left out and told in `found`.
// `root` as of LoadOptions.
RecordSet read_records(const std::string& path, const std::string& root,
                       std::vector<Diagnostic>& found);

}  // namespace trainyard::validation
