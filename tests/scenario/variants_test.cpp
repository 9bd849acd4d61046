// Variants: what each of them warns of, and one of them alone.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// tp 8 spans servers of 4 GPUs in the base and in "a"; not in "b", which warns of a thing of its
// own.
const char* const kVariants = R"("variants": [
  {"name": "a", "with": {"training": {"micro_batch": 2}}},
  {"name": "b", "with": {"parallelism": {"tp": 1, "context_parallel": {"method": "ring"}}}},
  {"name": "c", "with": {"parallelism": {"pp": null, "tp": 2, "dp": 4}}},
  {"name": "d", "with": {"parallelism": {"tp": 4, "pipeline": null}}}],)";

std::string written() {
  std::string text = test::kSmall;
  text.replace(text.find(R"("tp": 2, "pp": 2)"), 16, R"("tp": 8)");
  const std::string at = R"("model":)";
  return text.insert(text.find(at), kVariants);
}

}  // namespace

TEST_CASE("warnings of the scenario are those of every variant that keeps their cause") {
  test::Folder folder("variants");
  const ScenarioSet set = load_scenario(folder.write("s.json", written()));
  const std::string spans = "/parallelism/tp: tp 8 spans servers of 4 GPUs";
  CHECK(test::warnings(set.base).find(spans) == 0);
  CHECK(test::warnings(set.variants[0]) == test::warnings(set.base));
  CHECK(test::warnings(set.variants[1]).find(spans) == std::string::npos);
  CHECK(test::warnings(set.variants[1])
            .find("/parallelism/context_parallel/method: in variant \"b\": means nothing") !=
        std::string::npos);
}

TEST_CASE("a variant of a name alone is the scenario itself") {
  test::Folder folder("variants");
  const std::string path = folder.write("s.json", written());
  const ScenarioSet set = load_scenario(path, {R"(variants=[{"name": "base"}])"});
  REQUIRE(set.variants.size() == 1);
  CHECK(set.variants[0].variant == "base");
  CHECK(set.variants[0].plan.degrees.tensor == set.base.plan.degrees.tensor);
  CHECK(set.variants[0].recipe.micro_batch.size == set.base.recipe.micro_batch.size);
  CHECK(test::warnings(set.variants[0]) == test::warnings(set.base));
}

TEST_CASE("what a variant sets otherwise after --set is warned of, with what reaches it") {
  test::Folder folder("variants");
  const std::string path = folder.write("s.json", written());
  const ScenarioSet set = load_scenario(path, {"training.micro_batch=4"}, {.variant = "a"});
  CHECK(set.variants[0].recipe.micro_batch.size == 2);
  CHECK(test::warnings(set.variants[0])
            .find("/training/micro_batch: in variant \"a\": it sets this to 2, not --set "
                  "training.micro_batch=4") != std::string::npos);
  const ScenarioSet reached =
      load_scenario(path, {"variants.0.with.training.micro_batch=4"}, {.variant = "a"});
  CHECK(reached.variants[0].recipe.micro_batch.size == 4);
  CHECK(test::warnings(reached.variants[0]).find("--set") == std::string::npos);
  // The same value, and a variant that leaves it alone.
  for (const auto& [value, variant] : {std::pair("2", "a"), std::pair("4", "b")})
    CHECK(test::warnings(load_scenario(path, {std::string("training.micro_batch=") + value},
                                       {.variant = variant})
                             .variants[0])
              .find("not --set") == std::string::npos);
  // What merges with it, a number written otherwise; what is around it and removed.
  const auto told = [&](const char* given, const char* variant) {
    const ScenarioSet own = load_scenario(path, {given}, {.variant = variant});
    return test::warnings(own.variants[0]).find("not --set") != std::string::npos;
  };
  CHECK(!told(R"(parallelism={"pp": 2})", "b"));
  CHECK(!told("training.micro_batch=2.0", "a"));
  CHECK(told("parallelism.pp=1", "c"));
  CHECK(told("parallelism.pipeline.schedule=gpipe", "d"));
}

TEST_CASE("one variant is judged alone") {
  test::Folder folder("variants");
  const std::string path = folder.write("s.json", written());
  // Neither the base nor the other variants can take it.
  const std::vector<std::string> sets = {
      "parallelism.tp=4", "parallelism.pp=2", "parallelism.data_parallel.steps_between=7",
      "variants.0.with.parallelism.data_parallel.kind=local_sgd"};
  CHECK(test::problems(path, sets).find("steps_between: ") != std::string::npos);
  const ScenarioSet one = load_scenario(path, sets, {.variant = "a"});
  REQUIRE(one.variants.size() == 1);
  CHECK(one.variants[0].variant == "a");
  CHECK(one.names == std::vector<std::string>{"a", "b", "c", "d"});
  CHECK(test::problems(path, sets, {.variant = "b"}).find("steps_between: ") != std::string::npos);
  // And the scenario without any.
  const std::vector<std::string> of_base = {"parallelism.dp=1"};
  CHECK(test::problems(path, of_base) != "");
  CHECK(load_scenario(path, of_base, {.variant = ""}).variants.empty());
}

TEST_CASE("a list of variants that is wrong is told whichever is wanted") {
  test::Folder folder("variants");
  const std::string path = folder.write("s.json", written());
  const std::vector<std::string> twice = {"variants.1.name=a"};
  CHECK(test::problems(path, twice, {.variant = "c"}).find("two variants are named \"a\"") !=
        std::string::npos);
}

// Each against all others would be a billion comparisons, or as many messages.
TEST_CASE("fifty thousand variants are compared by name in proportion to their number") {
  test::Folder folder("variants");
  const auto file = [&](bool alike) {
    std::string variants;
    for (int i = 0; i < 50'000; ++i)
      variants +=
          fmt::format(R"({}{{"name": "v{}", "with": {{}}}})", i == 0 ? "" : ",", alike ? 0 : i);
    std::string text = test::kSmall;
    text.insert(text.find(R"("model":)"), fmt::format(R"("variants": [{}],)", variants));
    return folder.write(alike ? "alike.json" : "named.json", text);
  };
  const std::clock_t begin = std::clock();
  CHECK(load_scenario(file(false), {}, {.variant = ""}).names.size() == 50'000);
  const std::string all = test::problems(file(true), {}, {.variant = ""});
  CHECK(std::count(all.begin(), all.end(), '\n') <= 50'000);
  CHECK(all.find("two variants are named \"v0\"") != std::string::npos);
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 40);  // with sanitizers
}

TEST_CASE("more variants than are read together are refused before any is, and one alone is not") {
  test::Folder folder("variants");
  std::string variants;
  for (int i = 0; i <= 1 << 14; ++i)
    variants += fmt::format(R"({}{{"name": "v{}"}})", i == 0 ? "" : ",", i);
  std::string text = test::kSmall;
  text.insert(text.find(R"("model":)"), fmt::format(R"("variants": [{}],)", variants));
  const std::string path = folder.write("many.json", text);
  const std::string said = test::problems(path);
  CHECK(said.find("/variants: 16385 variants, at most 16384 are read together") !=
        std::string::npos);
  CHECK(std::count(said.begin(), said.end(), '\n') == 0);
  CHECK(test::problems(path, {}, {.variant = "v16384"}) == "");
}
