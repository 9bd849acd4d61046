// A small job whose searches take milliseconds.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/search/best.h"
#include "sim/search/result.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

namespace trainyard::test {

// GPT of 8 layers on 2 servers of 4 A100, with a search section.
inline std::string toy_search(const std::string& search, const std::string& memory = "80GiB") {
  return fmt::format(R"({{
  "version": 1, "name": "toy",
  "model": {{"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200}},
  "cluster": {{"nodes": 2, "node": {{"preset": "dgx-a100-80gb", "gpus": 4,
                                   "gpu": {{"preset": "a100-sxm4-80gb", "memory": "{}"}}}}}},
  "training": {{"global_batch": 32, "micro_batch": 1, "sequence_length": 1024,
               "precision": {{"compute": "bf16", "gradients": "fp32"}},
               "tokens": 1e9}},
  "cost": {{"gpu_hour": 2}},
  "parallelism": {{"tp": 1, "pp": 1}},
  "search": {}}})",
                     memory, search);
}

// A search with everything that it points to.
struct Searched {
  Searched(const std::string& path, const std::vector<std::string>& sets = {})
      : set(scenario::load_scenario(path, sets, {.variant = ""})),
        spec(*set.search),
        space(set, spec),
        judge(set, spec, space) {}

  std::vector<search::Trial> run(const search::SearchOptions& options = {}) const {
    return search::search(judge, space, spec, options);
  }
  std::string result(std::vector<search::Trial> trials, bool exhaustive = false) const {
    return json::to_text(json_of(result_of(std::move(trials), set, spec, space, exhaustive)));
  }

  scenario::ScenarioSet set;
  scenario::SearchSpec spec;
  search::Space space;
  search::Judge judge;
};

}  // namespace trainyard::test
