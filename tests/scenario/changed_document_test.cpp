// A document that is read many times with changes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/json/parse.h"
#include "sim/scenario/loaded.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Every value, every word of every diagnostic, as one text.
std::string everything(const scenario::Loaded& loaded) {
  std::string text = json::to_text(loaded.scenario.document);
  if (has_errors(loaded.diagnostics)) text.clear();
  for (const Diagnostic& diagnostic : loaded.diagnostics)
    text += to_text(diagnostic) + "\n";
  if (has_errors(loaded.diagnostics)) return text;
  for (const json::Explained& value : explain(loaded.scenario))
    text += fmt::format("{} {} {}:{}\n", value.pointer, value.value, value.origin.file,
                        value.origin.line);
  for (const scenario::Assumption& habit : loaded.scenario.habits)
    text += habit.pointer + " " + habit.value + "\n";
  return text;
}

}  // namespace

TEST_CASE("a document read once and changed is the changed document read") {
  const std::string file = std::string(TRAINYARD_SOURCE_DIR) + "/configs/scenarios/s.json";
  const scenario::Places places{scenario::configs_folder(file), ""};
  const std::vector<std::pair<const char*, bool>> patches = {
      {R"({})", true},
      {R"({"parallelism": {"tp": 2, "pp": 4}})", true},
      {R"({"training": {"micro_batch": 7}})", true},
      {R"({"parallelism": {"tp": 3, "wings": 2}})", true},
      {R"({"software": "pytorch-fsdp1"})", true},
      {R"({"software": "nothing-like-it"})", true},
      {R"({"parallelism": {"tp": 16}, "cluster": {"nodes": 2}})", false},
      {R"({"cluster": {"node": {"preset": "dgx-a100-80gb"}}})", false},
      {R"({"cluster": {"node": {"preset": "none-such"}}})", false},
      {R"({"model": {"preset": "gpt-22b"}})", false}};
  for (const char* software : {"", R"("software": "megatron-core",)"}) {
    const std::string text = fmt::format(
        R"({{"version": 1, "name": "s", {} "model": {{"preset": "gpt3-175b"}},
            "cluster": {{"preset": "selene", "nodes": 8}},
            "training": {{"global_batch": 64, "sequence_length": 2048}},
            "parallelism": {{"tp": 8, "pp": 8}}}})",
        software);
    std::vector<Diagnostic> none;
    const json::Value plain = json::parse_text(text, file, none);
    const scenario::ChangedDocument changed(plain, places);
    for (const auto& [patch_text, is_shared] : patches) {
      CAPTURE(patch_text);
      json::Value patch = json::parse_text(patch_text, file, none);
      spell_out_names(patch);
      json::Value whole = plain;
      json::merge_patch(whole, patch);
      const scenario::Loaded apart = load_document(whole, places);
      const scenario::Loaded together = changed.with(patch);
      CHECK(everything(together) == everything(apart));
      if (!has_errors(apart.diagnostics)) CHECK((together.scenario.shared != nullptr) == is_shared);
    }
  }
}
