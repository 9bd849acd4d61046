// One guard for every file that a scenario names.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const char* const kConfig = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
  "intermediate_size": 4096, "vocab_size": 32000, "hidden_act": "silu"})";

const char* const kRest =
    R"("cluster": {"nodes": 2, "node": {"preset": "dgx-a100-80gb", "gpus": 4}},
  "training": {"global_batch": 64, "micro_batch": 1, "sequence_length": 512,
    "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}})";

// A scenario that names one file, by each key that can.
struct Naming {
  const char* key;
  const char* content;                        // of the file
  std::string (*scenario)(std::string path);  // that names it
};

const std::array<Naming, 3> kNamings = {{
    {"/extends", test::kSmall,
     [](std::string path) { return "{\"extends\": \"" + path + "\", \"name\": \"mine\"}"; }},
    {"/model/hf_config", kConfig,
     [](std::string path) {
       return R"({"version": 1, "name": "x", "model": {"hf_config": ")" + path + "\"}," + kRest +
              "}";
     }},
    {"/cluster/calibration", "{}",
     [](std::string path) {
       std::string text = test::kSmall;
       const std::string at = "\"nodes\": 2,";
       return text.insert(text.find(at), "\"calibration\": \"" + path + "\", ");
     }},
}};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The working folder is another while this lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingFolder() { std::filesystem::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path before_;
};

}  // namespace

TEST_CASE("a scenario's own folder is read from wherever it is named") {
  for (const Naming& naming : kNamings) {
    CAPTURE(naming.key);
    test::Folder folder("guard");
    folder.write("named.json", naming.content);
    folder.write("deep/s.txt", "");
    folder.write("s.json", naming.scenario("named.json"));
    CHECK(test::problems(folder.path() + "/s.json") == "");
    const WorkingFolder inside(folder.path());
    CHECK(test::problems("s.json") == "");
    CHECK(test::problems("./s.json") == "");
    CHECK(test::problems("deep/../s.json") == "");
  }
}

TEST_CASE("what lies outside the scenario's root is refused, by whichever key and way") {
  for (const Naming& naming : kNamings) {
    CAPTURE(naming.key);
    test::Folder folder("guard");
    const std::string outside = folder.write("out/outside.json", naming.content);
    folder.write("root/configs/x.json", "{}");
    std::filesystem::create_symlink(outside, folder.path() + "/root/link.json");
    std::filesystem::create_directory_symlink(folder.path() + "/out", folder.path() + "/root/way");
    const auto found = [&](const std::string& path, const std::string& root = "") {
      return test::problems(folder.write("root/s.json", naming.scenario(path)), {},
                            {.variant = {}, .root = root});
    };
    const std::string cure = "; copy the file into " + folder.path() +
                             "/root, or allow it with --root " + folder.path() + "/out";
    for (const std::string path : {"../out/outside.json", "link.json", "way/outside.json"}) {
      CAPTURE(path);
      CHECK(contains(found(path), std::string(naming.key) + ": \"" + path + "\""));
      CHECK(contains(found(path), "leaves the scenario's root, "));
      CHECK(contains(found(path), cure));
      CHECK(found(path, folder.path() + "/out") == "");
      CHECK(found(path, folder.path()) == "");
      CHECK(contains(found(path, folder.path() + "/root/configs"), cure));
    }
    CHECK(contains(found(outside), "only relative paths are read" + cure));
    CHECK(found(outside, folder.path() + "/out") == "");
    CHECK(contains(found("/etc/passwd"), "only relative paths are read; copy the file into "));
    CHECK(contains(found(folder.path() + "/root/inside.json"), "; write \"inside.json\""));
  }
}

TEST_CASE("--root is kept when a scenario is changed for a search") {
  test::Folder folder("guard");
  folder.write("out/profile.json", "{}");
  const std::string path = folder.write("root/s.json", kNamings[2].scenario("../out/profile.json"));
  const Scenario scenario = load_scenario(path, {}, {.variant = {}, .root = folder.path()}).base;
  json::Value patch = json::Value::object();
  json::set(patch, "/training/micro_batch", json::Value::of(2));
  CHECK(with_patch(scenario, patch).has_value());
}

TEST_CASE("the preset of a project is no door to another folder") {
  test::Folder folder("guard");
  folder.write("out/gpu.json", "{}");
  folder.write("root/configs/models/x.json", "{}");
  folder.write("root/configs/gpus/y.json", "{}");
  std::filesystem::create_symlink(folder.path() + "/out/gpu.json",
                                  folder.path() + "/root/configs/gpus/secret.json");
  const std::string path = folder.write("root/s.json", test::kSmall);
  CHECK(contains(test::problems(path, {"cluster.node.gpu=secret"}),
                 "secret.json is a link that leaves its configs folder; copy the file there, or "
                 "allow it with --root " +
                     folder.path() + "/out"));
}
