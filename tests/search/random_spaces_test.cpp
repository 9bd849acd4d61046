// What a search leaves out is never among the best, and nothing tells how it was carried out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/random.h"
#include "sim/search/journal.h"
#include "tests/search/toy_space.h"

using namespace trainyard;

namespace {

struct AxisChoice {
  const char* key;
  std::vector<const char*> values;
};

const std::vector<AxisChoice>& axes() {
  static const std::vector<AxisChoice> all = {
      {"parallelism.tp", {"1", "2", "4", "8"}},
      {"parallelism.pp", {"1", "2", "4", "8"}},
      {"parallelism.cp", {"1", "2"}},
      {"training.micro_batch", {"1", "2", "4", "8"}},
      {"training.global_batch", {"16", "32", "64"}},
      {"training.recompute", {"\"none\"", "\"selective\"", "\"full\""}},
      {"parallelism.sequence_parallel", {"false", "true"}},
      {"parallelism.data_parallel.kind",
       {"\"allreduce\"", "\"distributed_optimizer\"", "\"zero2\"", "\"fsdp\"", "\"zero3\""}},
      {"parallelism.pipeline.schedule",
       {"\"1f1b\"", "\"gpipe\"", "\"interleaved_1f1b\"", "\"zb_h1\"", "\"zb_v\"", "\"v_half\"",
        "\"chimera\"", "\"dualpipe\""}},
      {"parallelism.pipeline.chunks_per_stage", {"1", "2"}},
      {"training.precision.compute", {"\"bf16\"", "\"fp32\""}},
      {"training.execution", {"\"fused\"", "\"eager\""}},
      {"training.forward_only", {"false", "true"}},
      {"training.finetune", {"{\"kind\": \"full\"}", "{\"kind\": \"lora\", \"last_layers\": 2}"}},
      {"parallelism.rank_order", {"\"tp-cp-dp-pp\"", "\"tp-pp-dp\"", "\"dp-tp-pp\""}},
      {"training.launch_time", {"\"0us\"", "\"8us\""}}};
  return all;
}

std::string random_search(SplitMix64& random) {
  std::string written;
  std::size_t size = 1;
  std::vector<std::size_t> order(axes().size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  for (std::size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[random.below(i + 1)]);
  for (const std::size_t at : order) {
    std::string values;
    std::size_t count = 0;
    for (const char* value : axes()[at].values)
      if (random.below(3) > 0) {
        values += fmt::format("{}{}", count++ == 0 ? "" : ", ", value);
      }
    constexpr std::size_t kMost = 48;
    if (count == 0 || size * count > kMost) continue;
    size *= count;
    written += fmt::format("{}\"{}\": [{}]", written.empty() ? "" : ", ", axes()[at].key, values);
  }
  if (written.empty()) return random_search(random);
  constexpr const char* kObjectives[] = {"\"training_time\"", "\"dollars\"",
                                         R"(["training_time", "memory"])"};
  return fmt::format(R"({{"objective": {}, "best": {}, "axes": {{{}}}}})",
                     kObjectives[random.below(3)], 1 + random.below(2), written);
}

// The JSON of the best, without how many were simulated.
std::string best_of(const test::Searched& searched, std::vector<Trial> trials, bool exhaustive) {
  const SearchResult result =
      result_of(std::move(trials), searched.set, searched.spec, searched.space, exhaustive);
  CHECK(result.would_lose == 0);
  std::string text;
  for (const RankedTrial& ranked : result.best)
    text += fmt::format("{} {}\n", ranked.trial.number, fmt::join(ranked.trial.objectives, " "));
  return text;
}

}  // namespace

TEST_CASE("the best of 200 random spaces are the best of all their simulations") {
  test::Folder folder("random-spaces");
  SplitMix64 random(20261126);
  constexpr const char* kMemory[] = {"80GiB", "12GiB", "6GiB"};
  std::size_t left_out = 0, simulated = 0, with_best = 0;
  for (int number = 0; number < 200; ++number) {
    const std::string text = test::toy_search(random_search(random), kMemory[random.below(3)]);
    CAPTURE(text);
    const test::Searched searched(folder.write("toy.json", text));
    const std::vector<Trial> all = searched.run({.exhaustive = true});
    const std::vector<Trial> few = searched.run();
    const std::string best = best_of(searched, few, false);
    CHECK(best == best_of(searched, all, true));
    with_best += best.empty() ? 0 : 1;
    for (std::size_t at = 0; at < all.size(); ++at) {
      simulated += few[at].result ? 1 : 0;
      if (all[at].result && few[at].verdict == Verdict::slower) ++left_out;
      // No bound is above the truth.
      if (!all[at].result || all[at].least.empty()) continue;
      for (std::size_t i = 0; i < all[at].least.size(); ++i)
        CHECK(all[at].least[i] <= all[at].objectives[i]);
    }
  }
  CHECK(with_best > 100);
  CHECK(left_out > simulated / 8);
  MESSAGE("simulated " << simulated << ", left out " << left_out);
}

TEST_CASE("threads, shards and what was stopped and resumed tell the same") {
  test::Folder folder("random-spaces");
  SplitMix64 random(4711);
  for (int number = 0; number < 25; ++number) {
    const std::string text = test::toy_search(random_search(random));
    CAPTURE(text);
    const test::Searched searched(folder.write("toy.json", text));
    const std::string whole = searched.result(searched.run());
    CHECK(searched.result(searched.run({.jobs = 4})) == whole);
    for (const std::uint64_t shards : {2U, 5U}) {
      std::map<std::uint64_t, Trial> merged;
      for (std::uint64_t shard = 0; shard < shards; ++shard)
        for (const Trial& trial : searched.run({.shard = {shard, shards}}))
          merged.emplace(trial.number, trial);
      std::vector<Trial> trials;
      for (const auto& [at, trial] : merged)
        trials.push_back(trial);
      CHECK(searched.result(trials) == whole);
    }
    // Stopped after any number of lines, in the middle of one.
    const JournalHead head = head_of(searched.set, searched.spec, searched.space, {});
    std::string log = to_line(head) + "\n";
    SearchOptions options;
    options.tell = [&](const Trial& trial) { log += to_line(trial, searched.space) + "\n"; };
    searched.run(options);
    for (int cut = 0; cut < 3; ++cut) {
      const std::size_t first = log.find('\n') + 1;
      const std::string part = log.substr(0, first + random.below(log.size() - first + 1));
      Journal journal = read_journal(part, "log");
      CHECK(journal.head.space == head.space);
      SearchOptions resumed;
      resumed.known = std::move(journal.trials);
      CHECK(searched.result(searched.run(resumed)) == whole);
    }
  }
}
