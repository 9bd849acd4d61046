// Logs of searches: what is written is read, and what is no log is refused.
#include "sim/search/journal.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/search/toy_space.h"

using namespace trainyard;

namespace {

std::string refusal(const std::string& text) {
  try {
    read_journal(text, "log.jsonl");
    return "";
  } catch (const ScenarioError& error) {
    return to_text(error.diagnostics().front());
  }
}

}  // namespace

TEST_CASE("a line of a log is read as it was written") {
  test::Folder folder("journal");
  const test::Searched searched(folder.write("toy.json", test::toy_search(R"({"axes": {
      "parallelism.tp": [1, 2, 3], "training.micro_batch": [1, 2, 16, 32],
      "training.recompute": ["none", "full"]}, "best": 2})",
                                                                          "6GiB")));
  const JournalHead head = head_of(searched.set, searched.spec, searched.space, {1, 4});
  std::string text = to_line(head) + "\n";
  const std::vector<Trial> trials = searched.run();
  for (const Trial& trial : trials)
    text += to_line(trial, searched.space) + "\n";
  const Journal journal = read_journal(text + R"({"number": 3, "verd)", "log.jsonl");
  CHECK(journal.whole == text.size());
  CHECK(journal.head.name == "toy");
  CHECK(journal.head.space == head.space);
  CHECK(journal.head.size == 24);
  CHECK(journal.head.shard.index == 1);
  CHECK(journal.head.shard.count == 4);
  REQUIRE(journal.trials.size() == trials.size());
  std::string again = to_line(journal.head) + "\n";
  for (const auto& [number, trial] : journal.trials)
    again += to_line(trial, searched.space) + "\n";
  CHECK(again == text);
}

TEST_CASE("another file, batch or price is another space; another number of threads is not") {
  test::Folder folder("journal");
  const std::string path =
      folder.write("toy.json", test::toy_search(R"({"axes": {"parallelism.tp": [1, 2]}})"));
  const auto space_of = [&](const std::vector<std::string>& sets) {
    const test::Searched searched(path, sets);
    return head_of(searched.set, searched.spec, searched.space, {}).space;
  };
  CHECK(space_of({}) == space_of({}));
  for (const char* set : {"training.global_batch=64", "cost.gpu_hour=3", "search.best=2",
                          "search.axes={\"parallelism.tp\":[1,4]}"})
    CHECK(space_of({set}) != space_of({}));
}

TEST_CASE("a space is another one when a file that the scenario or an axis names has changed") {
  test::Folder folder("journal");
  const auto profile = [&](const std::string& name, const std::string& tail) {
    std::ifstream shipped(TRAINYARD_SOURCE_DIR "/configs/profiles/a100-sxm4-80gb.json");
    folder.write(name, std::string(std::istreambuf_iterator<char>(shipped), {}) + tail);
  };
  const auto space_of = [&](const std::string& calibration, const std::string& axes) {
    std::string text = test::toy_search(fmt::format(R"({{"axes": {{{}}}}})", axes));
    text.insert(text.find(R"("nodes": 2)"), fmt::format(R"("calibration": "{}", )", calibration));
    const test::Searched searched(folder.write("toy.json", text));
    return head_of(searched.set, searched.spec, searched.space, {}).space;
  };
  const std::string tp = R"("parallelism.tp": [1, 2])";
  const std::string files = R"("cluster.calibration": ["./own.json", "./other.json"])";
  profile("own.json", "");
  profile("other.json", "");
  const std::string before = space_of("./own.json", tp), of_axis = space_of("none", files);
  profile("other.json", "\n");
  CHECK(space_of("./own.json", tp) == before);
  CHECK(space_of("none", files) != of_axis);
  profile("own.json", "\n");
  CHECK(space_of("./own.json", tp) != before);
}

TEST_CASE("what is no log is refused with the line") {
  const std::string head =
      R"({"search": "a", "space": "0", "configurations": 4, "shard": 1, "shards": 1})";
  CHECK(refusal(head + "\n") == "");
  CHECK(refusal("") == "log.jsonl:1:1: error: this is no log of a search; it has no whole line");
  CHECK(refusal("{}\n").starts_with("log.jsonl:1:1: error: this is no log of a search"));
  CHECK(refusal("\x1b\n").starts_with("log.jsonl:1:1: error: this is no log of a search"));
  CHECK(refusal(head + "\n{\"number\": -1}\n") ==
        "log.jsonl:2:1: error: this line is no configuration of the search; cut "
        "the file before it, and --resume does the rest again");
  CHECK(refusal(head + "\n" + R"({"number": 1, "verdict": "simulated"})" + "\n") ==
        "log.jsonl:2:1: error: this line is no configuration of the search; cut "
        "the file before it, and --resume does the rest again");
}
