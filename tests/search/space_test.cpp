// Which configurations a search has.
#include "sim/search/space.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/search/toy_space.h"

using namespace trainyard;

namespace {

std::string axis_text(const Space& space) {
  std::string text;
  for (const SpaceAxis& axis : space.axes()) {
    text += axis.key;
    for (const json::Value& value : axis.values)
      text += " " + json::to_text(value, -1);
    text += "\n";
  }
  return text;
}

// The diagnostics of a search section; "": it is fine.
std::string problems(const test::Folder& folder, const std::string& search) {
  const std::string path = folder.write("toy.json", test::toy_search(search));
  const std::string found = test::problems(path, {}, {.variant = ""});
  if (!found.empty()) return found;
  try {
    const scenario::ScenarioSet set = scenario::load_scenario(path, {}, {.variant = ""});
    const Space space(set, *set.search);
    return "";
  } catch (const ScenarioError& error) {
    return to_text(error.diagnostics().front());
  }
}

}  // namespace

TEST_CASE("lists, ranges and auto are the values of an axis") {
  test::Folder folder("space");
  const test::Searched searched(folder.write("toy.json", test::toy_search(R"({"axes": {
      "parallelism.tp": "auto", "parallelism.pp": {"from": 1, "to": 8, "times": 2},
      "/training/global_batch": {"from": 16, "to": 40, "plus": 8},
      "training.micro_batch": "auto", "training.recompute": ["none", "full"]},
      "objective": "training_time"})")));
  CHECK(axis_text(searched.space) ==
        "parallelism.tp 1 2 4\nparallelism.pp 1 2 4 8\n/training/global_batch 16 24 32 40\n"
        "training.micro_batch 1 2 3 4 5 6 8 10 12 16 20 24 32 40\ntraining.recompute \"none\" "
        "\"full\"\n");
  CHECK(searched.space.size() == 3 * 4 * 4 * 14 * 2);
  CHECK(searched.space.sizes() ==
        "parallelism.tp 3 x parallelism.pp 4 x /training/global_batch 4 x "
        "training.micro_batch 14 x training.recompute 2");
}

TEST_CASE("an axis that means nothing beside the others counts once") {
  test::Folder folder("space");
  const test::Searched searched(folder.write("toy.json", test::toy_search(R"({"axes": {
      "parallelism.tp": [1, 2], "parallelism.pp": [1, 2, 3],
      "parallelism.sequence_parallel": [false, true],
      "parallelism.pipeline.schedule": ["1f1b", "gpipe"],
      "parallelism.data_parallel.kind": ["allreduce", "fsdp"]}})")));
  std::string text;
  for (const Trial& trial : searched.run({.exhaustive = true})) {
    const Configuration configuration = searched.space.configuration(trial.number);
    if (trial.verdict == Verdict::same) continue;
    if (trial.verdict == Verdict::invalid) {
      // 8 GPUs in three stages.
      CHECK(trial.why == "/parallelism: tp x cp x pp do not divide the 8 GPUs");
      continue;
    }
    text += fmt::format("{}\n", fmt::join(searched.space.sets(configuration), " "));
  }
  CHECK(text ==
        "parallelism.tp=1 parallelism.pp=1 parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=1 parallelism.pp=1 parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=1 parallelism.pp=2 parallelism.pipeline.schedule=1f1b "
        "parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=1 parallelism.pp=2 parallelism.pipeline.schedule=1f1b "
        "parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=1 parallelism.pp=2 parallelism.pipeline.schedule=gpipe "
        "parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=1 parallelism.pp=2 parallelism.pipeline.schedule=gpipe "
        "parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=1 parallelism.sequence_parallel=false "
        "parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=1 parallelism.sequence_parallel=false "
        "parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=1 parallelism.sequence_parallel=true "
        "parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=1 parallelism.sequence_parallel=true "
        "parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=false "
        "parallelism.pipeline.schedule=1f1b parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=false "
        "parallelism.pipeline.schedule=1f1b parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=false "
        "parallelism.pipeline.schedule=gpipe parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=false "
        "parallelism.pipeline.schedule=gpipe parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=true "
        "parallelism.pipeline.schedule=1f1b parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=true "
        "parallelism.pipeline.schedule=1f1b parallelism.data_parallel.kind=fsdp\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=true "
        "parallelism.pipeline.schedule=gpipe parallelism.data_parallel.kind=allreduce\n"
        "parallelism.tp=2 parallelism.pp=2 parallelism.sequence_parallel=true "
        "parallelism.pipeline.schedule=gpipe parallelism.data_parallel.kind=fsdp\n");
}

TEST_CASE("passes overlap without stages, too") {
  test::Folder folder("space");
  const auto tried = [&](const char* axes) {
    const test::Searched searched(folder.write(
        "toy.json",
        test::toy_search(fmt::format(R"({{"axes": {{"parallelism.pp": [1], {}}}}})", axes))));
    std::string text;
    for (const Trial& trial : searched.run({.exhaustive = true})) {
      const Configuration configuration = searched.space.configuration(trial.number);
      CHECK(trial.verdict != Verdict::invalid);
      if (trial.verdict != Verdict::same)
        text += fmt::format("{}\n", fmt::join(searched.space.sets(configuration), " "));
    }
    return text;
  };
  CHECK(tried(R"("parallelism.pipeline.overlap_passes": "auto")") ==
        "parallelism.pp=1 parallelism.pipeline.overlap_passes=false\n"
        "parallelism.pp=1 parallelism.pipeline.overlap_passes=true\n");
  CHECK(tried(
            R"("parallelism.pipeline": [{"schedule": "gpipe"},
                 {"schedule": "1f1b", "overlap_passes": true}])") ==
        "parallelism.pp=1\n"
        "parallelism.pp=1 parallelism.pipeline.schedule=1f1b "
        "parallelism.pipeline.overlap_passes=true\n");
}

TEST_CASE("the options of a configuration make its scenario") {
  test::Folder folder("space");
  const std::string path = folder.write("toy.json", test::toy_search(R"({"axes": {
      "parallelism.tp": [2], "parallelism.pipeline": [{"schedule": "gpipe"}],
      "parallelism.pp": [2], "training.recompute": ["full"]},
      "constraints": {"fixed": {"training.micro_batch": 4}}})"));
  const test::Searched searched(path);
  const std::vector<Trial> trials = searched.run();
  REQUIRE(trials.size() == 1);
  REQUIRE(trials[0].result);
  const std::vector<std::string> sets = searched.space.sets(searched.space.configuration(0));
  const scenario::Scenario written = scenario::load_scenario(path, sets, {.variant = ""}).base;
  CHECK(simulate::simulate(written, {.timeline = false}).report.step_time ==
        trials[0].result->step);
  CHECK(written.recipe.micro_batch.size == 4);
}

// A name is merged with what the file says beside it, and an empty object changes nothing.
TEST_CASE("the options of a configuration merge as it does") {
  test::Folder folder("space");
  const std::string path = folder.write("toy.json", test::toy_search(R"({"axes": {
      "cluster.node": ["dgx-h100", "p4d.24xlarge"], "training": [{}, {"precision": {}}],
      "parallelism": [{}, {"pp": 2, "pipeline": {}}]}, "objective": "training_time"})"));
  const test::Searched searched(path);
  std::size_t simulated = 0;
  for (const Trial& trial : searched.run({.exhaustive = true})) {
    CAPTURE(trial.number);
    if (!trial.result) continue;
    ++simulated;
    const std::vector<std::string> sets =
        searched.space.sets(searched.space.configuration(trial.number));
    const scenario::Scenario written = scenario::load_scenario(path, sets, {.variant = ""}).base;
    CHECK(simulate::simulate(written, {.timeline = false}).report.step_time == trial.result->step);
    CHECK(written.cluster.server.gpus == 4);
  }
  CHECK(simulated == searched.space.size());
}

TEST_CASE("the same result in other words loses to nothing") {
  test::Folder folder("space");
  const test::Searched searched(folder.write("toy.json", test::toy_search(R"({"axes": {
      "parallelism.pp": [2], "parallelism.pipeline": [{}, {"schedule": "1f1b"}]}})")));
  const std::string result = searched.result(searched.run());
  CHECK(result.find(R"("why": "nothing: their result is that of one that is ranked")") !=
        std::string::npos);
  CHECK(result.find("slower kernels") == std::string::npos);
}

TEST_CASE("auto stands for what any network, cluster and batch of the space can take") {
  const auto space = [](const std::string& axes) {
    test::Folder folder("space");
    return axis_text(
        test::Searched(folder.write("toy.json", test::toy_search("{\"axes\": {" + axes + "}}")))
            .space);
  };
  CHECK(space(R"("cluster.node.gpus": [1, 8], "parallelism.tp": "auto")") ==
        "cluster.node.gpus 1 8\nparallelism.tp 1 2 4 8\n");
  CHECK(space(R"("parallelism.ep": "auto", "model.preset": ["gpt-22b", "mixtral-8x7b"])") ==
        "parallelism.ep 1 2 4 8\nmodel.preset \"gpt-22b\" \"mixtral-8x7b\"\n");
  test::Folder folder("space");
  CHECK(axis_text(test::Searched(folder.write("toy.json", test::toy_search(R"({
      "axes": {"training.micro_batch": "auto"},
      "constraints": {"fixed": {"training.global_batch": 8}}})")))
                      .space) == "training.micro_batch 1 2 4 8\n");
}

TEST_CASE("a search that contradicts itself is refused where it does") {
  test::Folder folder("space");
  const auto refused = [&](const std::string& search, const std::string& words) {
    const std::string said = problems(folder, search);
    CHECK_MESSAGE(said.find(words) != std::string::npos, said);
    CHECK_MESSAGE(said.find("toy.json:1") != std::string::npos, said);
  };
  refused(R"({"axes": {"parallelism.tp": []}})",
          "/search/axes/parallelism.tp: the axis has no value");
  refused(R"({"axes": {}})", "/search/axes: there is no axis");
  refused(R"({"axes": {"parallelism.tq": [1]}})", R"("parallelism.tq" is no key of a scenario)");
  refused(R"({"axes": {"name": ["a"]}})", R"(a search cannot change "name")");
  refused(R"({"axes": {"parallelism.tp": "all"}})", R"(expected values to try, got "all")");
  refused(R"({"axes": {"parallelism.tp": [1, 1]}})", "1 stands twice");
  refused(R"({"axes": {"parallelism.tp": {"from": 8, "to": 1, "times": 2}}})",
          "no end, or no value");
  refused(R"({"axes": {"parallelism.tp": {"from": 1, "to": 8}}})", R"(one of "plus" and "times")");
  refused(R"({"axes": {"parallelism.ep": "auto"}})", R"(no value of "parallelism.ep" is valid)");
  refused(R"({"axes": {"model.hidden": "auto"}})", R"("auto" is not known for "model.hidden")");
  refused(R"({"axes": {"parallelism.pipeline": [{}], "parallelism.pipeline.schedule": ["1f1b"]}})",
          R"(is varied by "parallelism.pipeline" too)");
  refused(R"({"axes": {"parallelism.tp": [1]}, "constraints": {"fixed": {"parallelism.tp": 2}}})",
          R"("parallelism.tp" is fixed, and the axis "parallelism.tp" varies it)");
  refused(R"({"constraints": {"memory": "96GiB"}})", "are more than a GPU has");
  refused(R"({"constraints": {"batch": {"at_least": 64, "at_most": 32}}})",
          "no batch is at least 64 and at most 32");
  refused(R"({"constraints": {"batch": {"at_least": 64}}})",
          "the batch is 32 in all configurations");
  refused(R"({"objective": ["memory", "memory"]})", R"("memory" stands twice)");
  refused(R"({"objective": "step_time", "axes": {"training.global_batch": [16, 32]}})",
          "the batch varies, and the smallest has the least step_time");
}

TEST_CASE("a value that no scenario can have is refused where it stands") {
  test::Folder folder("space");
  const auto said = [&](const std::string& search, const std::string& what) {
    CAPTURE(search);
    CHECK(problems(folder, search).find(what) != std::string::npos);
  };
  said(R"({"axes": {"parallelism.pipeline": [{}, {"shedule": "1f1b"}]}})",
       "/search/axes/parallelism.pipeline/1/shedule: unknown key; did you mean \"schedule\"?");
  said(R"({"axes": {"parallelism.pipeline.schedule": ["1f1b", "none"]}})",
       "/search/axes/parallelism.pipeline.schedule/1: unknown schedule \"none\"");
  said(R"({"axes": {"parallelism.tp": [1, "auto"]}})",
       "/search/axes/parallelism.tp/1: expected a whole number, got \"auto\"; \"auto\" stands for");
  said(R"({"axes": {"parallelism.tp": [1]}, "constraints": {"fixed": {"parallelism.pp": [2]}}})",
       "/search/constraints/fixed/parallelism/pp: expected a whole number, got an array");
}

TEST_CASE("spaces without end are counted without being walked") {
  test::Folder folder("space");
  std::string axes;
  for (const char* key : {"training.micro_batch", "parallelism.tp", "parallelism.pp",
                          "parallelism.cp", "parallelism.dp"})
    axes += fmt::format(R"({}"{}": {{"from": 1, "to": 9000, "plus": 1}})", axes.empty() ? "" : ",",
                        key);
  const test::Searched searched(
      folder.write("toy.json", test::toy_search(fmt::format(R"({{"axes": {{{}}}}})", axes))));
  CHECK(searched.space.size() == std::numeric_limits<std::uint64_t>::max());
}
