// Whole steps of encoders, encoder-decoders and vision transformers: what crosses a pipeline, what
// a stage holds, and that every schedule and strategy gives back what it takes.
#include "tests/support/networks.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "sim/plan/replicas/data_parallel.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job job(const Network& network, int tensor, int data, int pipeline, int microbatches = 4) {
  Job result;
  result.network = network;
  result.cluster = toy::cluster(tensor * data * pipeline, 1);
  result.recipe.global_batch = std::int64_t{microbatches} * data;
  result.recipe.micro_batch.sequence_length = reads_tokens(network) ? 128 : 1;
  if (network.is<EncoderDecoder>()) result.recipe.micro_batch.decoder_sequence_length = 64;
  result.plan.degrees = {.tensor = tensor, .data = data, .pipeline = pipeline};
  result.plan.tensor_parallel.sequence = tensor > 1;
  result.plan.data_parallel.bucket_size = Bytes(1 << 20);
  return result;
}

std::unique_ptr<Step> planned(const Job& job) {
  return simulate_step(job, {.unfold = false, .run = false});
}

std::int64_t parameters(const Step& step) {
  std::int64_t sum = 0;
  for (const Role& stage : step.plan.cast.roles)
    sum += stage.parameters;
  return sum;
}

void check_balance(const Job& job) {
  const auto step = simulate_step(job);
  REQUIRE(std::holds_alternative<Trace>(step->outcome));
  for (const MemoryPeak& peak : step->trace().peaks) {
    CHECK(peak.at_end == peak.resident);
    if (peak.resident > Bytes(0)) CHECK(peak.peak > peak.resident);
  }
  CHECK(summarize(job, *step).step_time.has_value());  // the breakdown checks itself
}

}  // namespace

// Encoder layers 1 to 4, the decoder's embedding 5, decoder layers 6 to 9, logits 10.
TEST_CASE("a pipeline cuts T5 before the decoder's embedding") {
  const auto step = planned(job(testing::small_t5(4, 4), 1, 1, 4));
  const std::vector<int> expected = {0, 3, 5, 8, 11};
  REQUIRE(step->plan.layers.size() == 4);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    CHECK(step->plan.layers[stage].first == expected[stage]);
    CHECK(step->plan.layers[stage].last == expected[stage + 1]);
  }
}

// Up to the decoder the encoder's states, from there on both; each tensor-parallel rank its part.
TEST_CASE("between decoder stages T5 sends the hidden states and the encoder's output") {
  const std::int64_t encoders = 128 * 512 * 2, decoders = 64 * 512 * 2;
  for (const int tensor : {1, 2}) {
    const auto step = planned(job(testing::small_t5(4, 4), tensor, 1, 4));
    std::vector<Bytes> sizes;
    for (const Connection& connection : step->plan.cast.connections)
      for (const TransferSpec& spec : connection.transfers)
        if (connection.traffic == plan::Traffic::message) sizes.push_back(spec.bytes);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    CHECK(sizes ==
          std::vector<Bytes>{Bytes(encoders / tensor), Bytes((encoders + decoders) / tensor)});
  }
}

TEST_CASE("a rank holds a tied matrix once, a pipeline as often as stages use it") {
  const EncoderDecoder network = testing::small_t5(4, 4);
  const std::int64_t once = parameter_count(network, 128), matrix = 8192 * 512;
  CHECK(parameters(*planned(job(network, 1, 1, 1))) == once);
  CHECK(parameters(*planned(job(network, 1, 1, 2))) == once + matrix);  // with the decoder
  CHECK(parameters(*planned(job(network, 1, 1, 4))) == once + 2 * matrix);
  EncoderDecoder untied = network;
  untied.stack.tied_embeddings = false;
  CHECK(parameters(*planned(job(untied, 1, 1, 1))) == once + matrix);
  CHECK(parameters(*planned(job(untied, 1, 1, 4))) == once + 2 * matrix);
  const Encoder bert = testing::small_bert(4);
  CHECK(parameters(*planned(job(bert, 1, 1, 1))) == parameter_count(bert, 128));
  CHECK(parameters(*planned(job(bert, 1, 1, 2))) == parameter_count(bert, 128) + matrix);
}

// 1F1B: stage s of p has p - s micro-batches in flight.
TEST_CASE("a stage keeps what is passed on once per micro-batch in flight") {
  const toy::Times times{3, 7, 0};
  const int p = 4;
  NetworkWork plain = toy::network(8, times), passing = plain;
  passing.kinds[0].passed_on = Bytes(1000);
  const auto few = toy::step(plain, "1f1b", p, 8, 1, times);
  const auto more = toy::step(passing, "1f1b", p, 8, 1, times);
  CHECK(few->end() == more->end());
  for (int s = 0; s < p; ++s) {
    const auto peak = [&](const toy::Result& result) {
      const Trace& trace = std::get<Trace>(result.outcome);
      return trace.peaks[ActorId(static_cast<std::uint32_t>(s))].peak.count();
    };
    CHECK(peak(*more) - peak(*few) == (s == 0 ? 0 : 1000 * (p - s)));
  }
}

TEST_CASE("activations by module sum to their category, the encoder's output at its own name") {
  // The last stage, with the logits of long targets, is the fullest; one micro-batch is in flight.
  Job own = job(testing::small_t5(2, 6), 1, 1, 2);
  own.recipe.micro_batch.decoder_sequence_length = 1024;
  const auto step = simulate_step(own);
  const MemoryReport memory = summarize(own, *step).memory;
  REQUIRE(memory.peak_rank == 1);
  Bytes sum, carried;
  for (const MemoryReport::ModuleBytes& module : memory.activations) {
    sum = sum + module.bytes;
    if (module.module == "encoder output") carried = module.bytes;
  }
  CHECK(sum == memory.by_category[static_cast<std::size_t>(MemoryKind::activations)]);
  CHECK(carried == Bytes(128 * 512 * 2));
}

// Every allocation has its end.
TEST_CASE("T5 gives back what it takes under every strategy of data parallelism") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    for (const int pipeline : {1, 2}) {
      if (entry.name == "nn_data_parallel" && pipeline > 1) continue;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        CAPTURE(entry.name);
        CAPTURE(pipeline);
        CAPTURE(name(recompute));
        Job own = job(testing::small_t5(2, 2), 1, 4, pipeline);
        own.recipe.recompute.form = recompute;
        own.plan.data_parallel.kind = entry.name;
        own.plan.data_parallel.shard_size = 2;
        own.plan.data_parallel.loss_in_model = true;
        check_balance(own);
      }
    }
  }
}

TEST_CASE("encoders give back what they take under every schedule that takes them") {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "chimera"}) {
    for (const Network& network :
         {Network(testing::small_bert(8)), Network(testing::small_t5(4, 4)),
          Network(testing::small_vit(8))}) {
      CAPTURE(schedule);
      CAPTURE(network.words());
      Job own = job(network, 2, 1, 2);
      own.plan.pipeline.schedule = schedule;
      const bool two_chunks =
          own.plan.pipeline.schedule == "interleaved_1f1b" || own.plan.pipeline.schedule == "zb_v";
      own.plan.pipeline.chunks = two_chunks ? 2 : 1;
      check_balance(own);
    }
  }
}

TEST_CASE("encoders give back what they take as PyTorch runs them") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    for (const Network& network :
         {Network(testing::small_bert(4)), Network(testing::small_t5(2, 2)),
          Network(testing::small_vit(4))}) {
      CAPTURE(network.words());
      Job own = job(network, 2, 2, 2);
      own.recipe.kernels.fusion = fusion;
      own.recipe.recompute.form = Recompute::full;
      check_balance(own);
    }
  }
}

TEST_CASE("FSDP gathers a matrix that three places of T5 use once") {
  const EncoderDecoder network = testing::small_t5(2, 2);
  Job own = job(network, 1, 2, 1, 1);
  own.plan.data_parallel.kind = "fsdp";
  own.plan.data_parallel.reshard_after_forward = false;
  const auto step = simulate_step(own);
  std::int64_t level = 0, peak = 0;
  for (const MemoryChange& change : step->trace().memory) {
    const Program& program = step->plan.cast.roles[0].program;
    if (change.category != static_cast<std::uint8_t>(MemoryKind::parameters) ||
        program.labels[change.owner] != "gathered parameters")
      continue;
    level += change.bytes;
    peak = std::max(peak, level);
  }
  CHECK(peak == 2 * parameter_count(network, 128));
}

TEST_CASE("samples are images or sequences, and only sequences have tokens") {
  const Job vision = job(testing::small_vit(2), 1, 2, 1);
  const Job text = job(testing::small_bert(2), 1, 2, 1);
  const StepReport images = summarize(vision, *simulate_step(vision));
  const StepReport sequences = summarize(text, *simulate_step(text));
  CHECK(!images.is_language);
  CHECK(images.tokens_per_s == 0);
  CHECK(sequences.is_language);
  CHECK(sequences.tokens_per_s == about(128 * sequences.samples_per_s));
}
