// Bases of a scenario: merged in order, inside its root, without cycles.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("bases are merged in order, and the file itself last") {
  test::Folder folder("extends");
  folder.write("base.json", test::kSmall);
  folder.write("parts/big.json", R"({"model": {"layers": 16}, "training": {"micro_batch": 2}})");
  const std::string path =
      folder.write("s.json",
                   R"({"extends": ["base.json", "parts/big.json"], "name": "mine",
          "training": {"micro_batch": 4}})");
  const Scenario s = load_scenario(path).base;
  CHECK(s.name == "mine");
  CHECK(s.network.as<Transformer>().layers == 16);
  CHECK(s.recipe.micro_batch.size == 4);
  CHECK(s.recipe.global_batch == 64);
}

TEST_CASE("null removes a value of the base") {
  test::Folder folder("extends");
  folder.write("base.json", test::kSmall);
  const std::string path =
      folder.write("s.json", R"({"extends": "base.json", "parallelism": {"tp": null}})");
  CHECK(load_scenario(path).base.plan.degrees.tensor == 1);
}

TEST_CASE("a mistake in a base is reported in the base") {
  test::Folder folder("extends");
  folder.write("base.json", test::kSmall);
  folder.write("bad.json", "{\n\"training\": {\"micro_batch\": 0}}");
  const std::string path = folder.write("s.json", R"({"extends": ["base.json", "bad.json"]})");
  CHECK(test::problems(path) ==
        "bad.json:2:29: error: /training/micro_batch: expected at least 1 and at most 1000000000, "
        "got 0");
}

TEST_CASE("a cycle is refused with its chain") {
  test::Folder folder("extends");
  folder.write("a.json", R"({"extends": "b.json"})");
  folder.write("b.json", R"({"extends": "a.json"})");
  const std::string found = test::problems(folder.path() + "/a.json");
  CHECK(found.find(
            "b.json:1:13: error: /extends: a file extends itself: a.json -> b.json -> a.json") !=
        std::string::npos);
}

TEST_CASE("no base is read from outside the scenario's root") {
  test::Folder folder("extends");
  folder.write("outside.json", test::kSmall);
  folder.write("root/presets/x.json", "{}");
  folder.write("root/deep/inside.json", test::kSmall);
  std::filesystem::create_symlink(folder.path() + "/outside.json",
                                  folder.path() + "/root/link.json");
  const auto extends = [&](const std::string& target) {
    return test::problems(folder.write("root/s.json", "{\"extends\": \"" + target + "\"}"));
  };
  CHECK(extends("deep/inside.json") == "");
  const std::string root = folder.path() + "/root";
  const std::string cure =
      "; copy the file into " + root + ", or allow it with --root " + folder.path();
  CHECK(extends("../outside.json").find("leaves the scenario's root, " + root + cure) !=
        std::string::npos);
  CHECK(extends("link.json").find("is a link that leaves the scenario's root, " + root + cure) !=
        std::string::npos);
  CHECK(extends("/etc/passwd").find("only relative paths are read") != std::string::npos);
  CHECK(extends("~/s.json").find("paths are not expanded") != std::string::npos);
  CHECK(extends("$HOME/s.json").find("paths are not expanded") != std::string::npos);
  CHECK(extends("http://x/s.json").find("nothing is fetched") != std::string::npos);
  CHECK(extends("missing.json").find("\"missing.json\" was not found in ") != std::string::npos);
  CHECK(extends("").find("the path is empty") != std::string::npos);
}
