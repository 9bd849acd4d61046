// What may be changed in a job so that it needs less memory: a table, one row per knob.
//
// Every change keeps the training: the global batch, the network and the optimizer stay, and so
// does the number of GPUs. (Gradients in 16 bits are summed less exactly.)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/json/value.h"
#include "sim/scenario/scenario.h"

namespace trainyard::search {

// One value that a change writes into the scenario's document.
struct Edit {
  std::string pointer;
  json::Value value;        // null: the key is removed
  std::string_view what{};  // for people; empty: it only goes with another edit (dp with tp)
};
using Edits = std::vector<Edit>;

struct FitKnob {
  std::string_view name;
  // The changes to try on a scenario; none where the knob does nothing. The loader judges them:
  // what the scenario cannot take is dropped.
  std::vector<Edits> (*changes)(const scenario::Scenario&);
  // Each change goes further than the one before: from the first that fits on, the next is tried
  // only while it is faster.
  bool graded = false;
};

// A knob comes after those that it builds on: what two of them do together is asked of the scenario
// that the first has changed.
std::span<const FitKnob> fit_knobs();

// What knobs cannot try as the servers do not state it, in a sentence; empty: nothing.
std::string untried_knobs(const scenario::Scenario& scenario);

// Whether fused attention is proposed for a GPU: FlashAttention-2 needs compute capability 8.0
// ("Ampere, Ada, or Hopper GPUs", its README). A GPU that says none is taken to have it.
bool runs_flash_attention(std::string_view compute_capability);

}  // namespace trainyard::search
