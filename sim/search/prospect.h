// Changes of a job that may make it fit, and what they should come to before they are simulated.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/memory_kind.h"
#include "sim/scenario/scenario.h"
#include "sim/search/fit_knobs.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/sketch/job_sketch.h"

namespace trainyard::search {

// In shares of the job as it is.
struct Guess {
  std::array<double, plan::kMemoryKinds> memory{};
  std::array<double, plan::kMemoryKinds> added{};  // bytes of what the job has none of
  std::array<double, 3> parts{};                   // of the job's time, as JobSketch::seconds
  double time = 1;
  double peak = 0;  // bytes
};

// Guesses from sketches of a job and of what becomes of it, or from two guesses that hold together
// what each holds alone: their shares of each part are multiplied.
class Guesses {
 public:
  // `report`: of the job.
  Guesses(const simulate::StepReport& report, const simulate::JobSketch& job)
      : report_(report), job_(job) {}

  Guess of(const simulate::JobSketch& changed) const;
  Guess both(const Guess& one, const Guess& other) const;
  bool fits(const Guess& guess) const {
    return guess.peak <= static_cast<double>(report_.memory.capacity.count());
  }

 private:
  void tell_peak(Guess& guess) const;

  const simulate::StepReport& report_;
  simulate::JobSketch job_;
};

struct Prospect {
  std::vector<std::size_t> knobs;  // ascending
  Edits edits;                     // of all of them
  Edits last;                      // of the last, on top of `onto` or of the job
  const Prospect* onto = nullptr;
  Guess guess;
  // The job so changed; empty: not read yet, and its guess is of what it is put together from.
  std::optional<scenario::Scenario> scenario{};
};

// Takes an edit in, in place of one of the same value.
void set(Edits& edits, const Edit& added);

// Two ways of knobs to the same file: tensor parallelism that brings sequence parallelism along is
// no other way than the two one after the other.
bool same_changes(const Edits& a, const Edits& b);

// The same change of the same knob has the same name on any scenario: dp beside tp does not count.
std::string name_of(std::size_t knob, const Edits& edits);

// How many values a document has.
std::uint64_t entries(const json::Value& value);

}  // namespace trainyard::search
