// What a replica computes at a time: sizes of batches and lengths of sequences.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/transformer/networks.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::models {

using scenario::kMostBatch;
using scenario::kMostTokens;

void visit_fields(json::Fields& f, MicroBatch& s) {
  f.field("micro_batch", s.size, json::between(1, kMostBatch),
          "Sequences, images or samples per data-parallel replica and micro-batch. Default: 1 of "
          "sequences and with a pipeline, else a replica's part of global_batch.");
  f.field("sequence_length", s.sequence_length, json::between(1, kMostTokens),
          "Tokens of a sequence, of an encoder-decoder the encoder's. Transformers need it.");
  f.field("decoder_sequence_length", s.decoder_sequence_length, json::between(1, kMostTokens),
          "Tokens of the decoder's sequences; an encoder-decoder needs it.");
  f.field(
      "document_length", s.document_length, json::between(1, kMostTokens),
      "Tokens of a document, where a decoder's sequences hold several and its attention stays in "
      "each (packed, or masked). Default: a sequence is one.");
  f.field("predictions_per_sequence", s.predictions, json::between(1, kMostTokens),
          "Masked tokens that a masked-language head sees. Default: all tokens go through it.");
}

}  // namespace trainyard::models

namespace trainyard::scenario {

namespace {

constexpr std::int64_t kMostMicrobatches = 1 << 20;

}  // namespace

models::MicroBatch assemble_batch(models::MicroBatch batch, const models::Network& network,
                                  Findings& findings) {
  const bool two_stacks = network.is<models::EncoderDecoder>();
  const bool decoder_is_said = batch.decoder_sequence_length.is_said();
  if (two_stacks && !decoder_is_said)
    findings.error("/training/decoder_sequence_length",
                   "is required and missing for an encoder_decoder");
  if (!two_stacks && decoder_is_said)
    findings.error("/training/decoder_sequence_length",
                   "only an encoder_decoder has a second sequence", "remove it");
  if (batch.predictions.is_said() && !network.is<models::Encoder>())
    findings.error("/training/predictions_per_sequence",
                   "only an encoder has a masked-language head", "remove it");
  if (batch.document_length.is_said() && !network.is<models::Transformer>())
    findings.error("/training/document_length",
                   "only a decoder's attention stays in documents of a sequence", "remove it");
  else if (batch.document_length > batch.sequence_length && batch.sequence_length.is_said())
    findings.error("/training/document_length",
                   fmt::format("a document of {} tokens is longer than the sequence of {}",
                               batch.document_length, batch.sequence_length),
                   "a sequence of one document needs no document_length");
  if (two_stacks) batch.decoder_sequence_length.otherwise(1);
  const bool is_language = reads_tokens(network);
  if (is_language && !batch.sequence_length.is_said())
    findings.error("/training/sequence_length", "is required and missing for a transformer");
  if (!is_language && batch.sequence_length.is_said()) {
    const bool images = network.sample() == models::Sample::image;
    findings.error("/training/sequence_length",
                   fmt::format("{} have no sequence", images ? "images" : "samples"), "remove it");
  }
  return batch;
}

// Sequences are long, and one fills a GPU; images and samples are not accumulated one by one.
void assume_micro_batch(Scenario& scenario) {
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  const bool accumulates = reads_tokens(scenario.network) || degrees.pipeline > 1;
  const std::int64_t part = scenario.recipe.global_batch / degrees.data;
  scenario.recipe.micro_batch.size.otherwise(accumulates ? 1 : std::max<std::int64_t>(1, part));
}

std::int64_t microbatches_per_step(const Scenario& scenario) {
  const std::int64_t per_round = scenario.recipe.micro_batch.size * scenario.plan.degrees.data;
  const std::int64_t microbatches = scenario.recipe.global_batch / per_round;
  const bool counts = scenario.recipe.global_batch % per_round == 0;
  return counts && microbatches <= kMostMicrobatches ? microbatches : 0;
}

void validate_batch(const Scenario& scenario, Findings& findings) {
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  const std::int64_t per_round = recipe.micro_batch.size * degrees.data;
  if (recipe.global_batch % per_round != 0) {
    const std::int64_t below = recipe.global_batch / per_round * per_round;
    findings.error(
        "/training/global_batch",
        fmt::format("{} is not divisible by micro_batch {} x dp {} = {}", recipe.global_batch,
                    recipe.micro_batch.size, degrees.data, per_round),
        below > 0 ? fmt::format("nearest: {}, {}", below, below + per_round)
                  : fmt::format("the least is {}", per_round));
    return;
  }
  const std::int64_t microbatches = recipe.global_batch / per_round;
  if (microbatches <= kMostMicrobatches) return;
  findings.error("/training/global_batch",
                 fmt::format("{} micro-batches per step, at most {} are simulated", microbatches,
                             kMostMicrobatches));
}

void validate_batch_split(const Scenario& scenario, Findings& findings) {
  constexpr const char* kSplit = "/parallelism/data_parallel/batch_split";
  const recipe::DataParallelOptions& options = scenario.plan.data_parallel;
  if (options.batch_split == recipe::BatchSplit::equal) return;
  const auto refuse = [&](std::string_view what) {
    findings.error(kSplit, std::string(what), "remove it, and all compute the same");
  };
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, scenario.recipe);
  if (strategy.has_leader() || strategy.add_roles != nullptr)
    refuse(fmt::format("micro-batches of different sizes are not described for {}", options.kind));
  if (scenario.plan.experts.ranks > 1 || scenario.network.is<models::Recommender>())
    refuse("replicas that exchange rows or tables compute the same number of samples");
  if (scenario.recipe.input) refuse("an input pipeline prepares batches of one size");
  if (options.batch_split == recipe::BatchSplit::by_speed) {
    if (scenario.recipe.micro_batch.size == 1)
      findings.warning(kSplit,
                       "a replica takes at least one sample, and micro_batch 1 is their mean",
                       "raise training.micro_batch");
    return;
  }
  const std::vector<int>& batches = options.batches;
  if (static_cast<int>(batches.size()) != degrees.data) {
    findings.error(kSplit,
                   fmt::format("{} micro-batches for {} replicas", batches.size(), degrees.data),
                   "write one for each, or \"by_speed\"");
    return;
  }
  const std::int64_t sum = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  const std::int64_t round = scenario.recipe.micro_batch.size * degrees.data;
  if (sum != round)
    findings.error(kSplit,
                   fmt::format("they sum to {}, and micro_batch {} x dp {} is {}", sum,
                               scenario.recipe.micro_batch.size.value(), degrees.data, round),
                   "micro_batch is their mean");
}

}  // namespace trainyard::scenario
