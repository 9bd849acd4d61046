// Whoever comes with the words of another framework is answered with ours.
#include "sim/scenario/words/foreign_words.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "sim/scenario/topics/sections.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::vector<std::string> quoted_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find('`'); at != text.npos; at = text.find('`', at)) {
    const std::size_t end = text.find('`', at + 1);
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

// "--batch-size N" and "MixedPrecision(reduce_dtype)" without what is behind the word.
std::string bare(const std::string& word) {
  const std::size_t begin = word.find_first_not_of('-');
  return word.substr(begin, word.find_first_of("=( ", begin) - begin);
}

// The words of the tables' first column, but for those that the second has too.
std::set<std::string> words_of_tables() {
  std::set<std::string> found;
  std::ifstream file(TRAINYARD_SOURCE_DIR "/docs/software.md");
  for (std::string line; std::getline(file, line);) {
    const std::size_t middle = line.find(" | ");
    if (!line.starts_with("| ") || middle == line.npos || line.ends_with("| here |")) continue;
    const std::vector<std::string> ours = quoted_words(line.substr(middle));
    for (const std::string& word : quoted_words(line.substr(0, middle)))
      if (std::find(ours.begin(), ours.end(), word) == ours.end()) found.insert(bare(word));
  }
  return found;
}

std::string said(const std::string& set) {
  const test::Folder folder("foreign-words");
  return test::problems(folder.write("s.json", test::kSmall), {set});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every word in the tables of docs/software.md is answered as a key or as a value") {
  const std::set<std::string> words = words_of_tables();
  CHECK(words.size() > 90);
  for (const std::string& word : words) {
    CAPTURE(word);
    const std::string as_key = said(fmt::format("/{}=1", word));
    const bool is_key = contains(as_key, "unknown key; ") && !contains(as_key, "key; known: ");
    const bool is_ours = !contains(said("training.recompute=" + word), "unknown ") ||
                         !contains(said("training.recompute_micro_batches=" + word), "unknown ");
    CHECK((is_key || is_ours || scenario::foreign_value(word).has_value()));
  }
}

TEST_CASE("a value is answered where the choice has it, and nowhere else") {
  CHECK(contains(said("parallelism.data_parallel.kind=stage1"), R"(write "zero1")"));
  CHECK(contains(said("model.ffn=relu2"), R"(write "squared_relu")"));
  const std::string elsewhere = said("training.recompute=stage1");
  CHECK(contains(elsewhere, "known: none, selective, full"));
  CHECK(!contains(elsewhere, "zero1"));
}

TEST_CASE("words are answered with keys that there are") {
  const json::KeyIndex keys = scenario::scenario_keys();
  for (const std::string_view cure : scenario::foreign_key_cures()) {
    if (cure.starts_with("remove")) continue;
    CAPTURE(cure);
    for (std::size_t at = cure.starts_with('/') ? 0 : cure.find(" /") + 1; at != 0;) {
      const std::size_t end = std::min(cure.find_first_of(" ,:", at), cure.size());
      const std::string_view pointer = cure.substr(at, end - at);
      const std::size_t last = pointer.rfind('/');
      CHECK(std::any_of(keys.begin(), keys.end(), [&](const json::KnownKey& known) {
        return known.section == pointer.substr(0, last) && known.key == pointer.substr(last + 1);
      }));
      at = cure.find(" /", end) + 1;
    }
  }
}

TEST_CASE("a number for a section of parallelism is its degree") {
  CHECK(contains(said("parallelism.tensor_parallel=2"), "got 2; write /parallelism/tp"));
  CHECK(contains(said("pipeline_parallel=2"), "unknown key; write /parallelism/pp"));
  CHECK(contains(said("data_parallel={\"kind\": \"fsdp\"}"), "it belongs under /parallelism"));
}

TEST_CASE("a word that says two things of ours is answered with both") {
  CHECK(contains(said("parallelism.data_parallel.kind=SHARD_GRAD_OP"),
                 R"(write "fsdp", and false at reshard_after_forward)"));
  CHECK(contains(said("training.batch_size=8"),
                 "write /training/micro_batch (of one GPU) or /training/global_batch (of all)"));
}
