// Scenario files that a test writes for itself, removed at its end.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/scenario/scenario.h"
#include "tests/support/rooms.h"

namespace trainyard::test {

// A folder of its own for one test. Its configs/ is empty, so that it is a scenario root; presets
// come from the source tree.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("trainyard-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// The diagnostics of a scenario, one per line, with `folder` removed from paths; "" if it loads.
inline std::string problems(const std::string& path, const std::vector<std::string>& sets = {},
                            const LoadOptions& options = {}) {
  std::string out;
  try {
    load_scenario(path, sets, options);
  } catch (const ScenarioError& error) {
    const std::string folder = std::filesystem::path(path).parent_path().string() + "/";
    for (const Diagnostic& diagnostic : error.diagnostics()) {
      if (!out.empty()) out += '\n';
      out += to_text(diagnostic);
    }
    for (std::size_t at = out.find(folder); at != std::string::npos; at = out.find(folder))
      out.erase(at, folder.size());
  }
  return out;
}

inline std::string warnings(const Scenario& scenario) {
  std::string out;
  for (const Diagnostic& diagnostic : scenario.warnings) {
    if (!out.empty()) out += '\n';
    out += diagnostic.pointer + ": " + diagnostic.message;
  }
  return out;
}

// A small valid job: GPT of 8 layers on two servers of 4 A100. Tests change it with --set.
inline const char* const kSmall = R"({
  "version": 1,
  "name": "small",
  "model": { "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200 },
  "cluster": { "nodes": 2, "node": { "preset": "dgx-a100-80gb", "gpus": 4 } },
  "training": {
    "global_batch": 64, "micro_batch": 1, "sequence_length": 512,
    "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" }
  },
  "parallelism": { "tp": 2, "pp": 2 }
})";

}  // namespace trainyard::test
