// A scenario to start from: a network, GPUs, and everything else as practice has it, said in full.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/commands/named_gpus.h"
#include "cli/find_gpu.h"
#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/scenario/scenario.h"
#include "sim/search/first_plan.h"
#include "sim/search/fit_knobs.h"

namespace trainyard::cli {
namespace {

using json::Value;
using models::Network;

// Tokens of a batch and of a sequence: between GPT-3's first and last batches (Brown et al. 2020,
// table 2.1: 0.5 M to 3.2 M tokens), of sequences as Llama 2's (4,096).
constexpr std::int64_t kBatchTokens = std::int64_t{1} << 20;
constexpr std::int64_t kSequence = 4096;
// Images of a GPU: Goyal et al. 2017. Samples of a batch: MLPerf's DLRM.
constexpr std::int64_t kImagesOfGpu = 32;
constexpr std::int64_t kSamples = 65536;

// Rotary positions have no table that would limit the network; its file says what it was made for.
std::int64_t sequence_of(const NewOptions& options, const Network& network) {
  std::int64_t most = kSequence;
  const models::Transformer* stack = stack_of(network);
  if (stack != nullptr && stack->max_positions > 0) most = std::min(most, stack->max_positions);
  if (options.hugging_face.empty()) return most;
  std::vector<Diagnostic> reported;  // by whoever read it before
  const Value config = json::parse_file(options.hugging_face, reported);
  const Value* said = config.find("max_position_embeddings");
  const auto positions = said != nullptr ? json::find_integer(*said) : std::nullopt;
  return positions && *positions > 0 ? std::min(most, *positions) : most;
}

// The nearest of 1, 2, 3, 4, 6, 8, 12, ...: what micro-batches divide in many ways.
std::int64_t round_to_divide(std::int64_t samples) {
  std::int64_t nearest = 1;
  for (std::int64_t power = 1; power < 2 * samples; power *= 2)
    for (const std::int64_t candidate : {power, power + power / 2})
      if (std::abs(candidate - samples) < std::abs(nearest - samples)) nearest = candidate;
  return nearest;
}

// At least one sample of every GPU, and as many of each.
std::int64_t batch_of(const Network& network, std::int64_t sequence, int gpus) {
  const std::int64_t wanted = reads_tokens(network)               ? kBatchTokens / sequence
                              : network.is<models::Recommender>() ? kSamples
                                                                  : kImagesOfGpu * gpus;
  return round_to_divide((wanted + gpus - 1) / gpus) * gpus;
}

Value model_of(const NewOptions& options) {
  Value model = Value::object();
  const std::string& word = options.hugging_face.empty() ? options.model : options.hugging_face;
  Value named = Value::of(word);
  named.at = json::place_of(options.hugging_face.empty() ? "--model" : "--hf");
  model.set(options.hugging_face.empty() ? "preset" : "hf_config", std::move(named));
  return model;
}

Value training_of(const NewOptions& options, const Network& network, const NamedGpus& gpus) {
  Value training = Value::object();
  const std::int64_t sequence =
      options.sequence_length > 0 ? options.sequence_length : sequence_of(options, network);
  const std::int64_t batch =
      options.global_batch > 0 ? options.global_batch : batch_of(network, sequence, gpus.count);
  training.set("global_batch", Value::of(batch));
  if (reads_tokens(network)) training.set("sequence_length", Value::of(sequence));
  if (network.is<models::EncoderDecoder>())
    training.set("decoder_sequence_length", Value::of(sequence));
  const bool is_fused = search::runs_flash_attention(capability_of_preset(gpus.gpu));
  if (stack_of(network) != nullptr) training.set("fused_attention", Value::of(is_fused));
  return training;
}

// What would be assumed is said, so that whoever opens the file sees it.
void say_assumed(Value& document, const scenario::Scenario& scenario) {
  for (const scenario::Assumption& assumption : scenario.assumed) {
    std::vector<Diagnostic> not_json;
    Value value = json::parse_text(assumption.value, "", not_json);
    if (!not_json.empty()) value = Value::of(assumption.value);
    json::set(document, assumption.pointer, std::move(value));
  }
  if (scenario.recipe.optimizer == recipe::Optimizer::sgd_momentum)
    json::set(document, "/training/optimizer/momentum", Value::of(true));
}

std::string name_of(const NewOptions& options) {
  std::string name = options.model;
  if (name.empty()) {  // the folder of a config.json is called as the network
    std::string path = options.hugging_face;
    const std::size_t file = path.rfind('/');
    path.resize(file == std::string::npos ? 0 : file);
    name = path.substr(path.rfind('/') + 1);
    if (name.empty() || name == "." || name == "..") name = "network";
  }
  std::string gpus = options.gpus;
  gpus.erase(std::remove(gpus.begin(), gpus.end(), ' '), gpus.end());
  std::replace(gpus.begin(), gpus.end(), '*', 'x');
  return name + "-" + gpus;
}

// What no plan could be made of, whichever words the scenario has for it.
void refuse_what_cannot_be(const NewOptions& options, const Network& network,
                           const NamedGpus& gpus) {
  const std::string name = options.model.empty() ? "the network" : options.model;
  if (options.sequence_length > 0 && !reads_tokens(network))
    throw UsageError(
        fmt::format("--sequence-length means nothing to {}, which reads no tokens", name));
  if (options.global_batch % gpus.count != 0)
    throw UsageError(fmt::format(
        "--global-batch {} is no multiple of the {} GPUs, of which each takes as many samples in "
        "the first plans that are tried; take {}, or write parallelism.tp into a file of your own",
        options.global_batch, gpus.count, (options.global_batch / gpus.count + 1) * gpus.count));
  const models::Transformer* stack = stack_of(network);
  if (stack != nullptr && stack->latent.used() &&
      !search::runs_flash_attention(capability_of_preset(gpus.gpu)))
    throw UsageError(fmt::format(
        "{} has latent attention, which only fused kernels run, and those run on GPUs of compute "
        "capability 8.0 and later: {} is older",
        name, gpus.gpu));
}

[[noreturn]] void refuse_bad_words(const NewOptions& options) {
  throw UsageError(options.model.empty()
                       ? "which network? --model PRESET (see 'trainyard presets') or --hf "
                         "config.json"
                       : "--model and --hf are two networks; name one");
}

std::string refusal(const search::FirstPlan& plan, const NamedGpus& gpus,
                    const std::string& untried) {
  if (!plan.closest)
    return fmt::format("none of {} plans of {} GPUs can be simulated", plan.simulated, gpus.count);
  const simulate::MemoryReport& memory = plan.closest->outline.memory;
  return fmt::format(
      "no plan of {} simulated fits {} GPUs: the leanest needs {} of {} a GPU; take "
      "more GPUs, or larger ones{}{}",
      plan.simulated, gpus.count, to_text(memory.wanted), to_text(memory.capacity),
      untried.empty() ? "" : ". ", untried);
}

}  // namespace

ExitCode new_scenario(const NewOptions& options, const Context& context) {
  if (options.model.empty() == options.hugging_face.empty()) refuse_bad_words(options);
  const NamedGpus gpus = named_gpus(options.gpus);
  scenario::LoadOptions load;
  load.root = options.root;
  Value document = Value::object();
  document.set("version", Value::of(1));
  document.set("name", Value::of(name_of(options)));
  document.set("model", model_of(options));
  document.set("cluster", gpus.cluster);
  const Network network = scenario::network_of(document, load);
  refuse_what_cannot_be(options, network, gpus);
  document.set("training", training_of(options, network, gpus));
  say_assumed(document, scenario::scenario_of(document, load));
  const scenario::Scenario start = scenario::scenario_of(document, load);
  search::FirstPlanOptions search;
  search.progress = [&](const std::string& text) { context.console.progress(text); };
  const search::FirstPlan plan = first_plan(start, search);
  context.console.end_progress();
  if (!plan.best) {
    context.console.error(refusal(plan, gpus, search::untried_knobs(start)));
    return ExitCode::infeasible;
  }
  json::merge_patch(document, plan.best->patch);
  const simulate::StepReport& outline = plan.best->outline;
  context.console.note(fmt::format(
      "the fastest of {} plans that were simulated: {} a step, {} of {} on the fullest GPU",
      plan.simulated, to_text(outline.simulated_step), to_text(outline.memory.peak),
      to_text(outline.memory.capacity)));
  context.console.result(json::to_text(document) + "\n");
  return ExitCode::done;
}

}  // namespace trainyard::cli
