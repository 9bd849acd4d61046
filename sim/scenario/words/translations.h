// What other frameworks call the keys and values of a scenario.
//
// Whoever comes from Megatron-LM, DeepSpeed, torchtitan or Hugging Face writes
// `tensor_parallel_size`,
// `"ddp"`, `"bfloat16"`, `"8k"` or `"10GbE"`. None of them is read as if it were ours, since words
// that look alike do not always mean the same; the error says what to write.
#pragma once

#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"

namespace trainyard::scenario {

// Replaces the cure of each error about a word that another framework uses, wherever it stands.
// `document` is the tree in which the errors were found.
void translate(const json::Value& document, std::vector<Diagnostic>& diagnostics);

}  // namespace trainyard::scenario
