#include "tests/fuzz/examine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "models/recommender/recommender.h"
#include "sim/json/parse.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/simulate/report/summary.h"
#include "sim/simulate/simulate.h"
#include "sim/simulate/sketch/job_bounds.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/fold.h"
#include "tests/fuzz/program.h"

namespace trainyard::fuzz {

using scenario::Scenario;
using scenario::ScenarioSet;
using simulate::StepReport;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr double kMostCpuSeconds = 120;  // the sanitizers take six times as long
#else
constexpr double kMostCpuSeconds = 20;
#endif

struct Broken {
  Finding finding;
};

// `Requires` of this file: what is false is a finding.
template <class... Parts>
void must(bool holds, std::string_view invariant, fmt::format_string<Parts...> detail,
          Parts&&... parts) {
  if (holds) return;
  throw Broken{{std::string(invariant), fmt::format(detail, std::forward<Parts>(parts)...)}};
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void must_be_located(const ScenarioError& error) {
  must(!error.diagnostics().empty(), "diagnostics", "refused without a reason");
  for (const Diagnostic& diagnostic : error.diagnostics()) {
    must(!diagnostic.message.empty(), "diagnostics", "an empty message");
    must(!diagnostic.at.file.empty() || !diagnostic.pointer.empty(), "diagnostics",
         "not located: {}", to_text(diagnostic));
  }
}

json::Value parsed(const std::string& text, const char* what) {
  std::vector<Diagnostic> wrong;
  json::Value value = json::parse_text(text, what, wrong);
  must(wrong.empty(), "JSON", "{} is no JSON: {}", what,
       wrong.empty() ? "" : to_text(wrong.front()));
  return value;
}

// ---- A report by itself ----

Duration sum(const simulate::Breakdown& parts) {
  Duration total{};
  for (const Duration part : parts)
    total += part;
  return total;
}

void check_times(const StepReport& report) {
  must(!report.deadlock, "deadlock", "{}", report.deadlock.value_or(""));
  must(report.simulated_step > Duration(0), "step", "it takes no time");
  must(!report.step_time || *report.step_time == report.simulated_step, "step",
       "two times of one step");
  must(report.step_time.has_value() == report.fits, "step", "a time although it does not fit");
  must(sum(report.breakdown) == report.simulated_step, "breakdown",
       "the slowest rank's parts are {} of {} ps", sum(report.breakdown).count(),
       report.simulated_step.count());
  int ranks = 0;
  for (const StepReport::RankBreakdown& rank : report.ranks) {
    ranks += rank.count;
    must(sum(rank.breakdown) == report.simulated_step, "breakdown",
         "rank {}'s parts are {} of {} ps", rank.rank, sum(rank.breakdown).count(),
         report.simulated_step.count());
    for (const Duration part : rank.breakdown)
      must(part >= Duration(0), "breakdown", "rank {} has a part below 0", rank.rank);
  }
  must(ranks == report.world_size, "breakdown", "{} ranks of {}", ranks, report.world_size);
}

void check_shares(const StepReport& report) {
  constexpr double kRounding = 1e-9;
  const auto share = [&](std::string_view what, double value) {
    must(value >= 0 && value <= 1 + kRounding, "utilisation", "{} is {}", what, value);
  };
  share("mfu", report.mfu);
  share("hfu", report.hfu);
  share("the idle share", report.bubble_fraction);
  double all = 0;
  for (const simulate::BasisShare& basis : report.basis) {
    share("a share of the basis", basis.fraction);
    all += basis.fraction;
  }
  must(report.basis.empty() || std::abs(all - 1) < 1e-6, "utilisation",
       "the shares of the basis are {}", all);
  if (report.step_time)
    must(report.hfu >= report.mfu * (1 - kRounding), "utilisation", "hfu {} is below mfu {}",
         report.hfu, report.mfu);
}

void check_memory(const simulate::MemoryReport& memory) {
  Bytes parts{};
  for (const Bytes part : memory.by_category) {
    must(part >= Bytes(0), "memory", "a category below 0");
    parts = parts + part;
  }
  must(parts == memory.peak, "memory", "categories are {}, the peak {}", parts.count(),
       memory.peak.count());
  must(memory.allocated <= memory.reserved && memory.reserved <= memory.peak, "memory",
       "allocated {}, reserved {}, peak {}", memory.allocated.count(), memory.reserved.count(),
       memory.peak.count());
  Bytes activations{};
  for (const simulate::MemoryReport::ModuleBytes& module : memory.activations)
    activations = activations + module.bytes;
  const Bytes held = memory.by_category[static_cast<std::size_t>(plan::MemoryKind::activations)];
  must(activations == held, "memory", "activations by module are {}, in all {}",
       activations.count(), held.count());
}

// ---- Two reports of one plan ----

bool close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({std::abs(a), std::abs(b), 1e-9});
}

void check_unfolded(const StepReport& folded, const StepReport& all) {
  constexpr const char* kFold = "fold";
  must(folded.simulated_step == all.simulated_step, kFold, "folded {} ps, unfolded {} ps",
       folded.simulated_step.count(), all.simulated_step.count());
  must(folded.breakdown == all.breakdown, kFold, "another breakdown of the slowest rank");
  must(folded.slowest_rank == all.slowest_rank, kFold, "slowest rank {}, unfolded {}",
       folded.slowest_rank, all.slowest_rank);
  must(folded.fits == all.fits, kFold, "only one fits");
  must(folded.memory.peak == all.memory.peak && folded.memory.peak_at == all.memory.peak_at &&
           folded.memory.peak_rank == all.memory.peak_rank &&
           folded.memory.by_category == all.memory.by_category,
       kFold, "peak {} of rank {}, unfolded {} of rank {}", folded.memory.peak.count(),
       folded.memory.peak_rank, all.memory.peak.count(), all.memory.peak_rank);
  must(folded.pipeline_bytes == all.pipeline_bytes, kFold, "pipelines send {} bytes, unfolded {}",
       folded.pipeline_bytes.count(), all.pipeline_bytes.count());
  must(close(folded.bubble_fraction, all.bubble_fraction), kFold, "idle shares {} and {}",
       folded.bubble_fraction, all.bubble_fraction);
  must(folded.mfu == all.mfu && folded.hfu == all.hfu, kFold, "another utilisation");
  must(folded.warnings == all.warnings, kFold, "other warnings");
  must(folded.basis.size() == all.basis.size(), kFold, "another basis");
  for (std::size_t i = 0; i < folded.basis.size(); ++i)
    must(close(folded.basis[i].fraction, all.basis[i].fraction), kFold, "basis {} and {}",
         folded.basis[i].fraction, all.basis[i].fraction);
}

// Ranks that do nothing together but one kind of collective at a time, over links of their own.
bool meets_nobody(const simulate::Job& job) {
  const recipe::ParallelDegrees& degrees = job.plan.degrees;
  const bool speaks = (degrees.tensor > 1) != (degrees.data > 1);
  return speaks && degrees.context == 1 && degrees.pipeline == 1 && degrees.world_size() <= 16 &&
         job.cluster.servers == 1 && job.cluster.server.intra == topologies::IntraKind::nvswitch &&
         job.plan.data_parallel.kind == "allreduce" && job.plan.experts.ranks == 1 &&
         !job.recipe.offload.any() && !job.network.is<models::Recommender>();
}

// Checks that hold two whole steps, op by op, are for what memory holds twice: the program itself
// keeps 3 KB a pass.
bool can_be_held_twice(const Scenario& scenario) {
  constexpr std::int64_t kMostLayerPasses = 1 << 16;
  return scenario.network.chain().places <=
         kMostLayerPasses / std::max<std::int64_t>(1, scenario::microbatches_per_step(scenario));
}

// ---- The program ----

class Examination {
 public:
  explicit Examination(std::string path) : path_(std::move(path)) {}

  Examined run() {
    Examined examined;
    try {
      set_ = scenario::load_scenario(path_);
      report_ = simulate::simulate(set_.base, {.unfold = false, .timeline = false}).report;
    } catch (const ScenarioError& error) {
      must_be_located(error);
      examined.verdict = Verdict::refused;
      const Diagnostic& first = error.diagnostics().front();
      examined.finding.detail = first.pointer + ": " + first.message;
      return examined;
    }
    examined.fits = report_.fits;
    check_times(report_);
    check_shares(report_);
    check_memory(report_.memory);
    check_fold();
    check_fidelities();
    check_bounds();
    check_run();
    check_explain();
    check_variants();
    return examined;
  }

 private:
  Ran ran(const cli::Command& command, const char* what) const {
    Ran result = fuzz::ran(command);
    must(result.code != 70, "exit code 70", "{}: {}", what, first_line(result.err));
    must(result.cpu_seconds <= kMostCpuSeconds, "time", "{} takes {:.1f} s", what,
         result.cpu_seconds);
    return result;
  }

  Ran ran_run(const cli::RunOptions& options) const {
    return ran([&](const cli::Context& context) { return cli::run(options, context); }, "run");
  }

  void check_fold() const {
    const StepReport all =
        simulate::simulate(set_.base, {.unfold = true, .timeline = false}).report;
    check_unfolded(report_, all);
    if (!can_be_held_twice(set_.base)) return;
    const std::string difference = fold_difference(simulate::job_of(set_.base));
    must(difference.empty(), "fold", "{}", difference);
  }

  // Where no two messages meet on a link, both fidelities say the same but for the rounding of each
  // message.
  void check_fidelities() const {
    simulate::Job job = simulate::job_of(set_.base);
    if (!meets_nobody(job) || !can_be_held_twice(set_.base)) return;
    for (simulate::GpuPrice& price : job.prices)
      price.profile.reset();
    job.collectives = {};
    job.fidelity = recipe::Fidelity::closed_form;
    const Duration closed = simulate::simulate_step(job)->trace().end;
    job.fidelity = recipe::Fidelity::flow;
    const Duration flow = simulate::simulate_step(job)->trace().end;
    const Duration apart = closed > flow ? closed - flow : flow - closed;
    must(apart.count() <= 1'000'000 + closed.count() / 1'000'000, "fidelities",
         "closed form {} ps, flow {} ps", closed.count(), flow.count());
  }

  // A search leaves out what these say cannot fit or cannot win.
  void check_bounds() const {
    const simulate::Job job = simulate::job_of(set_.base);
    const simulate::JobBound bound = simulate::JobBounds(job).of(job);
    must(to_duration(Seconds(bound.seconds())) <= report_.simulated_step, "bounds",
         "{} s are not possible, and simulated are {} ps", bound.seconds(),
         report_.simulated_step.count());
    must(bound.memory <= report_.memory.peak, "bounds", "{} bytes are needed, and used are {}",
         bound.memory.count(), report_.memory.peak.count());
  }

  void check_run() const {
    cli::RunOptions options;
    options.scenario.path = path_;
    options.output.json = true;
    const Ran first = ran_run(options);
    must(first.code == (report_.fits ? 0 : 1), "exit code", "run ends with {}: {}", first.code,
         first_line(first.err));
    const json::Value result = parsed(first.out, "the result");
    check_json(result);
    // Files cost more than all else, and are written from what is the same.
    const bool writes = first.out.size() % 6 == 0;
    for (const char* folder : {"first", "second"}) {
      options.output.folder = writes ? folder : "";
      const Ran again = ran_run(options);
      must(again.code == first.code, "exit code", "run -o ends with {}: {}", again.code,
           first_line(again.err));
      must(again.out == first.out, "bytes", "a second run prints something else");
    }
    if (writes) check_files();
    check_ways(result);
    options.output.folder.clear();
    options.scenario.sets = {"simulation.exploit_periodicity=false"};
    must(ran_run(options).out == first.out, "periods", "micro-batches one by one say else");
  }

  // Every file of a result is there, twice the same.
  static void check_files() {
    for (const char* name : {"summary.json", "report.html", "trace.pftrace.gz"}) {
      const std::string one = content_of_file(fmt::format("first/{}", name));
      must(!one.empty(), "files", "{} is empty or missing", name);
      must(one == content_of_file(fmt::format("second/{}", name)), "bytes", "{} differs", name);
    }
  }

  void check_json(const json::Value& result) const {
    for (const char* key : {"mfu", "hfu", "step_time_s", "tokens_per_s", "model_tflops_per_gpu"}) {
      const json::Value* value = result.find(key);
      must(value != nullptr, "JSON", "no {}", key);
      if (!report_.fits) must(value->is(json::Kind::null), "JSON", "{} although nothing fits", key);
    }
  }

  // Every way to fit is a command that can be pasted, and does what it promises.
  void check_ways(const json::Value& result) const {
    const json::Value* ways = result.find("ways_to_fit");
    if (report_.fits || ways == nullptr || !ways->is(json::Kind::array)) return;
    for (const json::Value& way : ways->items) {
      cli::RunOptions options;
      options.scenario.path = path_;
      options.output.json = true;
      options.no_ways_to_fit = true;
      std::string said;
      for (const json::Value& set : way.find("set")->items) {
        options.scenario.sets.push_back(set.text);
        said += " --set " + set.text;
      }
      const Ran again = ran_run(options);
      must(again.code == 0, "ways to fit", "{} ends with {}: {}", said, again.code,
           first_line(again.err));
      const json::Value fitting = parsed(again.out, "the result");
      must(json::same(*fitting.find("step_time_s"), *way.find("step_time_s")), "ways to fit",
           "{} takes {} s, not the {} that are promised", said, fitting.find("step_time_s")->text,
           way.find("step_time_s")->text);
    }
  }

  void check_explain() const {
    cli::ExplainOptions options;
    options.scenario.path = path_;
    const Ran result =
        ran([&](const cli::Context& context) { return cli::explain(options, context); }, "explain");
    must(result.code == 0 && !result.out.empty(), "exit code", "explain ends with {}: {}",
         result.code, first_line(result.err));
  }

  static std::vector<std::string> warnings(const Scenario& scenario) {
    std::vector<std::string> all;
    for (const Diagnostic& warning : scenario.warnings)
      all.push_back(warning.pointer + ": " + warning.message);
    std::sort(all.begin(), all.end());
    return all;
  }

  void check_variants() const {
    for (const Scenario& variant : set_.variants) {
      scenario::LoadOptions alone;
      alone.variant = variant.variant;
      const ScenarioSet one = load_scenario(path_, {}, alone);
      must(one.variants.size() == 1, "variants", "{} of one", one.variants.size());
      must(warnings(variant) == warnings(one.variants.front()), "warnings",
           "variant {} has {} of {}", variant.variant, warnings(variant).size(),
           warnings(one.variants.front()).size());
    }
    if (set_.variants.empty()) return;
    cli::CompareOptions options;
    options.scenario.path = path_;
    options.output.json = true;
    options.output.force = true;  // the folder that the scenario names holds the result of run
    options.jobs = 1;
    const auto compare = [&](const cli::Context& context) {
      return cli::compare(options, context);
    };
    const Ran one = ran(compare, "compare");
    must(one.code == 0 || one.code == 1 || one.code == 3, "exit code", "compare ends with {}: {}",
         one.code, first_line(one.err));
    options.jobs = 2;
    must(ran(compare, "compare").out == one.out, "bytes", "compare -j 2 prints something else");
  }

  std::string path_;
  ScenarioSet set_;
  StepReport report_;
};

}  // namespace

Examined examine(const std::string& path) {
  try {
    return Examination(path).run();
  } catch (const Broken& broken) {
    Examined examined;
    examined.verdict = Verdict::broken;
    examined.finding = broken.finding;
    return examined;
  }
}

}  // namespace trainyard::fuzz
