// Damaged scenarios: whatever happens to the bytes, the answer is a scenario or diagnostics.
#include <doctest/doctest.h>

#include <filesystem>

#include "sim/base/random.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kMutations = 1500;

// Deletes, doubles, or replaces a piece of the text, or puts another piece of it in its place.
std::string mutated(std::string text, SplitMix64& random) {
  const std::string_view kBytes = "{}[]\",:0123456789eE+-.\\/ntf\x01\x80\xFF";
  const std::size_t at = random.below(text.size());
  const std::size_t length = 1 + random.below(12);
  switch (random.below(4)) {
    case 0: text.erase(at, length); break;
    case 1: text.insert(at, text.substr(random.below(text.size()), length)); break;
    case 2: text[at] = kBytes[random.below(kBytes.size())]; break;
    default: text.replace(at, length, text.substr(random.below(text.size()), length)); break;
  }
  return text;
}

}  // namespace

TEST_CASE("no damage to a scenario's text is answered by anything but diagnostics") {
  test::Folder folder("mutation");
  std::string text = test::kSmall;
  text.replace(text.rfind('}'), 1, R"(,
  "variants": [ { "name": "a", "with": { "parallelism": { "pp": null } } } ],
  "perturbations": { "stragglers": [ { "select": { "node": 1 }, "compute_slowdown": 1.5 } ] }
})");
  SplitMix64 random(20261120);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::string damaged = mutated(text, random);
    if (i % 2 == 1) damaged = mutated(damaged, random);
    const std::string path = folder.write("s.json", damaged);
    try {
      load_scenario(path);
    } catch (const ScenarioError& error) {
      ++refused;
      CAPTURE(damaged);
      REQUIRE_FALSE(error.diagnostics().empty());
      CHECK_FALSE(error.diagnostics().front().message.empty());
      CHECK_FALSE(error.diagnostics().front().at.file.empty());
    }
  }
  CHECK(refused > kMutations / 2);
  CHECK(refused < kMutations);
}
