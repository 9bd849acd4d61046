// The campaign of damaged files: whatever is in them, the answer is a result or diagnostics.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <functional>
#include <sstream>

#include "sim/json/parse.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/child.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/examine.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/plan.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/shrink.h"

namespace trainyard::fuzz {

namespace fs = std::filesystem;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kMostSeconds = 300;  // the sanitizers take their share
constexpr std::size_t kMostBytes = std::size_t{12} << 30;
#else
constexpr int kMostSeconds = 60;
constexpr std::size_t kMostBytes = std::size_t{4} << 30;
#endif
constexpr Limits kLimits{.cpu_seconds = kMostSeconds, .bytes = kMostBytes};

// A file before and after, and the command that reads it.
struct Damaged {
  std::string name;  // of the file, by which its kind is known: "config.json"
  std::string before, after;
  std::vector<std::pair<std::string, std::string>> beside;
  std::string format{};  // of an import
};

std::string source(const std::string& path) {
  return content_of_file(fmt::format("{}/{}", TRAINYARD_SOURCE_DIR, path));
}

// A job that takes little time, with one section of its own.
std::string small_job(const std::string& model, const std::string& cluster) {
  return fmt::format(R"({{
  "version": 1,
  "name": "small",
  "model": {},
  "cluster": {},
  "training": {{
    "global_batch": 8, "micro_batch": 1, "sequence_length": 256, "fused_attention": true,
    "precision": {{"compute": "bf16"}}, "optimizer": {{"type": "adam"}}
  }},
  "parallelism": {{"tp": 2, "sequence_parallel": true}}
}}
)",
                     model, cluster);
}

constexpr const char* kNetwork = R"({"layers": 4, "hidden": 512, "heads": 8, "vocab": 32000})";
constexpr const char* kServer = R"({"nodes": 1, "node": {"preset": "dgx-a100-80gb", "gpus": 4}})";

Damaged damaged_scenario(Draw& draw, std::uint64_t seed) {
  constexpr std::array kShipped = {"resnet50-ddp-8xv100", "four-strategies", "dlrm-8xa100",
                                   "bert-large-8xa100",   "gpt-2x4090",      "layers-table-2xa100"};
  Damaged file{"plan.json", "", "", {}};
  if (draw.chance(20)) {
    file.before = source(fmt::format("configs/scenarios/{}.json", draw.element(kShipped)));
  } else {
    Plan plan = draw_plan(seed, draw.between(0, 5));
    file.before = json::to_text(plan.scenario) + "\n";
    file.beside = std::move(plan.files);
  }
  return file;
}

Damaged damaged_config(Draw& draw) {
  Damaged file{"config.json", "", "", {}};
  const char* family = draw.word({"llama", "deepseek", "gpt2", "qwen3-moe", "bert", "nemotron"});
  file.before = source(fmt::format("tests/fuzz/corpus/hf-{}.json", family));
  file.beside.push_back({"plan.json", small_job(R"({"hf_config": "config.json"})", kServer)});
  return file;
}

Damaged damaged_profile(Draw& draw) {
  Damaged file{"profile.json", "", "", {}};
  file.before = source(fmt::format("configs/profiles/{}-80gb.json",
                                   draw.word({"a100-sxm4", "a100-sxm4", "h100-sxm5"})));
  file.beside.push_back(
      {"plan.json", small_job(kNetwork, R"({"nodes": 1, "calibration": "./profile.json",
    "calibration_of_other_gpu": true, "node": {"preset": "dgx-a100-80gb", "gpus": 4}})")});
  return file;
}

Damaged damaged_samples(Draw& draw) {
  Damaged file{"samples.jsonl", "", "", {}};
  file.before = source(
      fmt::format("tests/calibrate/recorded/{}.jsonl", draw.word({"a100", "h100_all_reduce"})));
  return file;
}

Damaged damaged_log(Draw& draw) {
  struct Log {
    const char *name, *path, *format;
  };
  constexpr std::array kLogs = {
      Log{"log.json", "fuzz/corpus/nvbandwidth.json", "nvbandwidth"},
      Log{"log.txt", "fuzz/corpus/smi-topo.txt", "smi-topo"},
      Log{"log.txt", "fuzz/corpus/smi-topo.txt", "server"},
      Log{"log.xml", "fuzz/corpus/nccl-topo.xml", "server"},
      Log{"log.json", "fuzz/corpus/nccl-tests.json", "nccl-tests"},
      Log{"log.txt", "calibrate/recorded/a100-broadcast.txt", "nccl-tests"},
      Log{"log.txt", "calibrate/recorded/h100-2x8-all-gather.txt", "nccl-tests"},
      Log{"log.txt", "calibrate/recorded/h100-2x8-all-reduce.txt", "nccl-tests"},
      Log{"log.txt", "calibrate/recorded/h100-all-reduce.txt", "nccl-tests"}};
  const Log& log = draw.element(kLogs);
  return {log.name, source(fmt::format("tests/{}", log.path)), "", {}, log.format};
}

Damaged draw_damaged(std::uint64_t seed) {
  Draw draw(seed * 7919 + 13);
  Damaged file;
  switch (draw.between(0, 9)) {
    case 0:
    case 1: file = damaged_config(draw); break;
    case 2:
    case 3: file = damaged_profile(draw); break;
    case 4: file = damaged_samples(draw); break;
    case 5:
    case 6: file = damaged_log(draw); break;
    default: file = damaged_scenario(draw, seed); break;
  }
  // Written as damage writes it, so that only what is damaged differs.
  std::vector<Diagnostic> wrong;
  const json::Value whole = json::parse_text(file.before, file.name, wrong);
  if (wrong.empty()) file.before = json::to_text(whole) + "\n";
  file.after = damaged(file.before, draw);
  return file;
}

// ---- What must hold ----

std::string broken(std::string_view invariant, std::string_view detail) {
  return fmt::format("broken 0 {}\n{}", invariant, detail);
}

// A command that refuses says why, prints no result and leaves nothing behind.
std::string check_refusal(const Ran& result, const std::string& output) {
  if (result.code == 70) return broken("exit code 70", result.err);
  if (result.code != 2 && result.code != 3)
    return broken(fmt::format("exit code {}", result.code), result.err);
  if (result.err.find("error: ") == std::string::npos) return broken("refused in silence", "");
  if (!result.out.empty()) return broken("torn output", result.out.substr(0, 300));
  if (fs::exists(output)) return broken("torn output", output + " is left behind");
  return "held 0 refused";
}

// Lines of JSON, or one value.
bool is_json(const std::string& path) {
  const std::string text = content_of_file(path);
  std::vector<Diagnostic> wrong;
  if (!path.ends_with(".jsonl")) {
    json::parse_text(text, path, wrong);
    return wrong.empty();
  }
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line))
    json::parse_text(line, path, wrong);
  return wrong.empty();
}

std::string check_writing(const cli::Command& command, const std::string& output) {
  const Ran result = ran(command);
  if (result.code != 0) return check_refusal(result, output);
  if (!is_json(output)) return broken("torn output", output + " is no JSON");
  return "held 0 fits";
}

std::string check_import(const Damaged& file) {
  cli::ImportCommandOptions options;
  options.format = file.format;
  options.path = file.name;
  options.output = file.format == "server" ? "server.json" : "samples.jsonl";
  options.gpu = "NVIDIA A100-SXM4-80GB";
  if (file.name == "log.txt" && file.format == "server") options.nic_bandwidth = "200Gbps";
  return check_writing(
      [&](const cli::Context& context) { return cli::import_log(options, context); },
      options.output);
}

std::string check_plan() {
  cli::CheckOptions options;
  options.paths = {"plan.json"};
  const Ran result = ran([&](const cli::Context& context) { return cli::check(options, context); });
  if (result.code != 0) return check_refusal(result, "out");
  const Examined examined = examine("plan.json");
  if (examined.verdict == Verdict::broken)
    return broken(examined.finding.invariant, examined.finding.detail);
  return examined.verdict == Verdict::refused ? "held 0 refused" : "held 0 fits";
}

// The profile that is fitted serves a job.
std::string check_fit() {
  cli::FitCommandOptions options;
  options.samples = {"samples.jsonl"};
  options.output = "fitted.json";
  const std::string written = check_writing(
      [&](const cli::Context& context) { return cli::fit(options, context); }, "fitted.json");
  if (written != "held 0 fits") return written;
  write_file("plan.json", small_job(kNetwork, R"({"nodes": 1, "calibration": "./fitted.json",
    "calibration_of_other_gpu": true, "node": {"preset": "dgx-a100-80gb", "gpus": 4}})"));
  return check_plan();
}

std::string checked(const Damaged& file) {
  const Folder folder;
  for (const auto& [name, content] : file.beside)
    write_file(name, content);
  write_file(file.name, file.after);
  if (file.name == "samples.jsonl") return check_fit();
  if (fs::exists("plan.json")) return check_plan();
  return check_import(file);
}

// The lines of one text that the other does not have.
std::string changed_lines(const std::string& before, const std::string& after) {
  std::string changed;
  std::istringstream lines(after);
  std::string line;
  while (std::getline(lines, line) && changed.size() < 2000)
    if (("\n" + before).find("\n" + line + "\n") == std::string::npos)
      changed += "  > " + line.substr(0, 300) + "\n";
  return changed;
}

}  // namespace

int run_damaged(const Campaign& campaign) {
  Children children(kLimits);
  Clock clock;
  int next = 0, done = 0, findings = 0, refused = 0;
  while (next < campaign.seeds || children.running() > 0) {
    while (next < campaign.seeds && children.running() < static_cast<std::size_t>(campaign.jobs)) {
      const std::uint64_t seed = campaign.first_seed + static_cast<std::uint64_t>(next++);
      children.start(seed, [seed] { return checked(draw_damaged(seed)); });
    }
    const auto [seed, ending] = children.wait();
    clock.add(seed, ending.cpu_seconds);
    tell_progress(campaign, ++done, findings);
    refused += ending.said == "held 0 refused";
    const Finding finding = finding_of(ending);
    if (finding.invariant.empty()) continue;
    ++findings;
    const Damaged file = draw_damaged(seed);
    fmt::print("finding: {}\n  {}\n  again: ./dev fuzz --mutate 1 --seed {}\n{} differs in\n{}",
               finding.invariant, finding.detail, seed, file.name,
               changed_lines(file.before, file.after));
    std::fflush(stdout);
    if (campaign.keep.empty()) continue;
    const std::string folder = fmt::format("{}/damaged-{}", campaign.keep, seed);
    fs::create_directories(folder);
    for (const auto& [name, content] : file.beside)
      write_file(folder + "/" + name, content);
    write_file(folder + "/" + file.name, file.after);
  }
  fmt::print(
      "{} damaged files, {} refused; {:.0f} s of CPU, the most {:.1f} s for seed {}; {} findings\n",
      campaign.seeds, refused, clock.all, clock.most, clock.slowest, findings);
  return findings;
}

}  // namespace trainyard::fuzz
