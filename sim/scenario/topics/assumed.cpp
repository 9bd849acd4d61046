// What a file may leave out though an estimate depends on it: every output names it.
#include <fmt/format.h>

#include <array>

#include "models/transformer/networks.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

namespace {

// A value that practice decides, and why it is what it is.
struct Guess {
  std::string value, why;
};

Guess nodes(const Scenario& scenario) {
  return {fmt::format("{}", scenario.cluster.servers), "one server"};
}

Guess micro_batch(const Scenario& scenario) {
  const std::string value = fmt::format("{}", scenario.recipe.micro_batch.size.value());
  if (reads_tokens(scenario.network)) return {value, "one sequence at a time"};
  return {value, scenario.plan.degrees.pipeline > 1 ? "with a pipeline one at a time"
                                                    : "a replica's part of the batch at once"};
}

Guess compute(const Scenario& scenario) {
  const models::Dtype dtype = scenario.recipe.precision.compute;
  return {std::string(name(dtype)),
          dtype == models::Dtype::bf16 ? "the GPU has it" : "the GPU has no bf16"};
}

Guess optimizer(const Scenario& scenario) {
  if (scenario.recipe.optimizer == recipe::Optimizer::adam)
    return {"adam", "as transformers are trained"};
  return scenario.recipe.optimizer == recipe::Optimizer::sgd_momentum
             ? Guess{"sgd", "with momentum, as convolutional networks are trained"}
             : Guess{"sgd", "as recommenders are trained"};
}

bool has_attention(const Scenario& scenario) {
  return stack_of(scenario.network) != nullptr;
}
Guess fused_attention(const Scenario& scenario) {
  const models::AttentionKernel kernel = scenario.recipe.kernels.attention;
  if (kernel == models::AttentionKernel::unfused) return {"false", "attention keeps its scores"};
  return {std::string(name(kernel)), "what frameworks take on this GPU"};
}
// Fused, but not by whom.
bool names_nobody(const json::Value& said) {
  return said.is(json::Kind::boolean) && said.boolean;
}

bool has_one_process(const Scenario& scenario) {
  return scenario.plan.data_parallel.kind == "nn_data_parallel" && scenario.plan.degrees.data > 1;
}
Guess lock_share(const Scenario& scenario) {
  return {fmt::format("{}", scenario.plan.data_parallel.lock_share.value()),
          "half of a launch's time needs the interpreter's lock"};
}

struct Assumable {
  const char* pointer;
  Guess (*guess)(const Scenario&);
  bool (*is_of)(const Scenario&) = [](const Scenario&) { return true; };
  bool (*leaves_open)(const json::Value& said) = [](const json::Value&) { return false; };
};
constexpr std::array<Assumable, 6> kAssumables = {
    {{"/cluster/nodes", nodes},
     {"/training/micro_batch", micro_batch},
     {"/training/precision/compute", compute},
     {"/training/optimizer/type", optimizer},
     {"/training/fused_attention", fused_attention, has_attention, names_nobody},
     {"/parallelism/data_parallel/lock_share", lock_share, has_one_process}}};

}  // namespace

std::vector<Assumption> assumptions(const Scenario& scenario, const json::Value& document) {
  std::vector<Assumption> found;
  for (const Assumable& row : kAssumables) {
    const json::Value* said = json::find(document, row.pointer);
    const bool is_said = said != nullptr && !said->is(json::Kind::null) && !row.leaves_open(*said);
    if (is_said || !row.is_of(scenario)) continue;
    Guess guess = row.guess(scenario);
    found.push_back({row.pointer, std::move(guess.value), std::move(guess.why)});
  }
  return found;
}

}  // namespace trainyard::scenario
