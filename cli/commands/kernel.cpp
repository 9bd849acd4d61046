// trainyard kernel: what one kernel costs on a GPU, and what the figure rests on.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/commands/kernel_spec.h"
#include "cli/commands/unknown_name.h"
#include "cli/find_gpu.h"
#include "sim/base/text.h"
#include "sim/cost/profile.h"
#include "sim/json/parse.h"
#include "sim/scenario/gpu_origin.h"
#include "sim/scenario/runs_on.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/simulate/outlook/kernel_interval.h"
#include "sim/simulate/pricing.h"
#include "sim/simulate/step.h"

namespace trainyard::cli {
namespace {

std::string find_gpu(const std::string& name) {
  std::string found = gpu_called(name, "--gpu");
  if (!found.empty()) return found;
  fail_unknown("GPU", name, gpu_preset_names(), "--gpu");
}

// As /cluster/calibration of a scenario.
scenario::ProfileChoice find_profile(const std::string& wanted, const topologies::GpuSpec& gpu,
                                     const std::string& configs) {
  if (wanted == "none") return {};
  if (wanted == "kind") return {"", true};
  if (wanted.empty()) {
    const std::string own = scenario::own_profile(gpu, configs);
    return {own, own.empty()};
  }
  if (wanted.find('/') != std::string::npos || wanted.ends_with(".json")) return {wanted, false};
  const std::vector<std::string> known = scenario::preset_names(configs, "profiles");
  if (std::find(known.begin(), known.end(), wanted) != known.end())
    return {scenario::preset_path(configs, "profiles", wanted), false};
  fail_unknown("profile", wanted, known, "--calibration");
}

// Products as they are where runs end before power lowers the clock.
cost::Profile in_short_runs(cost::Profile profile) {
  for (cost::GemmLaw& law : profile.gemm)
    law.compute_efficiency = std::min(law.compute_efficiency * law.short_run.value_or(1), 1.0);
  return profile;
}

struct Machine {
  topologies::GpuSpec gpu;
  cost::MachinePeaks peaks;
  simulate::Pricing pricing;
  std::unique_ptr<cost::ComputeCost> compute, compute_in_short_runs;
  std::vector<simulate::KernelClass> classes;

  // Whose numbers the times are, in words.
  std::string priced_by() const {
    return pricing.uncalibrated.empty() ? "profile " + pricing.profile->name
                                        : "uncalibrated, " + pricing.uncalibrated;
  }
};

Machine find_machine(const KernelCommandOptions& options) {
  const std::string configs = scenario::configs_folder(".");
  const std::string preset = find_gpu(options.gpu);
  Machine machine;
  machine.gpu = scenario::gpu_of_preset(configs, preset);
  if (machine.gpu.name.empty()) machine.gpu.name = preset;
  machine.peaks = simulate::peaks(machine.gpu);
  topologies::ServerSpec server;
  server.gpu = machine.gpu;
  machine.pricing = simulate::pricing_of(find_profile(options.calibration, machine.gpu, configs),
                                         server, configs);
  machine.compute = machine.pricing.profile
                        ? cost::fitted_compute_cost(*machine.pricing.profile, machine.peaks)
                        : cost::roofline_compute_cost(machine.peaks);
  if (machine.pricing.profile)
    machine.compute_in_short_runs =
        cost::fitted_compute_cost(in_short_runs(*machine.pricing.profile), machine.peaks);
  const std::string path = scenario::preset_path(configs, "accuracy", "kernels");
  // All measured kernels that classes are of ran on GPUs.
  if (!machine.gpu.is_cpu() && scenario::is_file(path))
    machine.classes = simulate::read_kernel_classes(path);
  return machine;
}

// Why the GPU does not run it; empty: it does.
std::string why_not_on(const topologies::GpuSpec& gpu, const models::Kernel& kernel) {
  scenario::NotOnGpu refused;
  if (const auto* attention = std::get_if<models::Attention>(&kernel)) {
    refused = scenario::refuse_attention(attention->kernel, gpu);
    if (refused.why.empty()) refused = scenario::refuse_dtype(attention->dtype, gpu);
  }
  if (const auto* gemm = std::get_if<models::Gemm>(&kernel))
    refused = scenario::refuse_dtype(gemm->dtype, gpu);
  if (const auto* conv = std::get_if<models::Convolution>(&kernel))
    refused = scenario::refuse_dtype(conv->dtype, gpu);
  return refused.why.empty() ? "" : fmt::format("{}; {}", refused.why, refused.cure);
}

struct Answer {
  AskedKernel asked;
  cost::Estimate estimate;
  std::optional<simulate::KernelInterval> interval;
  const cost::Provenance* from = nullptr;  // of the law; null: the datasheet

  double flop_rate() const { return models::flops(asked.kernel).count() / estimate.time.count(); }
  double byte_rate() const {
    return static_cast<double>(models::memory_traffic(asked.kernel).count()) /
           estimate.time.count();
  }
};

Answer answer(const Machine& machine, AskedKernel asked) {
  Answer result{std::move(asked), {}, {}, nullptr};
  const models::Kernel& kernel = result.asked.kernel;
  const bool quick = result.asked.in_short_run && machine.compute_in_short_runs;
  result.estimate = (quick ? machine.compute_in_short_runs : machine.compute)->time(kernel);
  const auto& profile = machine.pricing.profile;
  if (profile) result.from = cost::law_origin(*profile, machine.peaks, kernel);
  const bool own = profile && machine.pricing.uncalibrated.empty();
  result.interval =
      simulate::kernel_interval(machine.classes, own ? profile->calibration : std::nullopt, kernel,
                                own, result.estimate.time);
  return result;
}

std::string time_text(Seconds time) {
  return to_text(to_duration(time));
}

std::string rate_text(const Answer& answer) {
  const std::string bytes = fmt::format("{:.0f} GB/s", answer.byte_rate() * 1e-9);
  if (answer.flop_rate() <= 0) return bytes;
  return fmt::format("{:.1f} TFLOP/s, {}", answer.flop_rate() * 1e-12, bytes);
}

std::string text_of(const Machine& machine, const Answer& answer) {
  const cost::Estimate& estimate = answer.estimate;
  std::string text = fmt::format("{} on {}\n  time      {}", escape_control(answer.asked.text),
                                 escape_control(machine.gpu.name), time_text(estimate.time));
  if (answer.interval)
    text += fmt::format(" ({} to {}: 8 of 10 like it)", time_text(answer.interval->low),
                        time_text(answer.interval->high));
  text += fmt::format("\n  rate      {}\n  basis     {}{}; {}\n", rate_text(answer),
                      name(estimate.basis),
                      estimate.reach.empty() ? "" : ": " + escape_control(estimate.reach),
                      escape_control(machine.priced_by()));
  if (!answer.from) text += "  law       roofline of the datasheet\n";
  if (answer.from)
    text +=
        fmt::format("  law       {}\n            on {}; {}\n            error: {}\n",
                    escape_control(answer.from->source), escape_control(answer.from->machine),
                    escape_control(answer.from->samples), escape_control(answer.from->residual));
  if (answer.interval)
    text += fmt::format("  interval  of {}\n", escape_control(answer.interval->of));
  return text;
}

// What begins like a formula would be one in a spreadsheet.
std::string cell(std::string_view text) {
  std::string cell = escape_control(text);
  if (!cell.empty() && std::string_view("=+-@").find(cell[0]) != std::string_view::npos)
    cell.insert(cell.begin(), '\'');
  if (cell.find_first_of(",\"") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell)
    quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

constexpr const char* kColumns =
    "kernel,gpu,time_us,low_us,high_us,basis,reach,priced_by,law,interval_of\n";

std::string csv_of(const Machine& machine, const Answer& answer) {
  const auto number = [](Seconds time) { return shortest(microseconds(time)); };
  const auto& interval = answer.interval;
  return fmt::format("{},{},{},{},{},{},{},{},{},{}\n", cell(answer.asked.text),
                     cell(machine.gpu.name), number(answer.estimate.time),
                     interval ? number(interval->low) : "", interval ? number(interval->high) : "",
                     name(answer.estimate.basis), cell(answer.estimate.reach),
                     cell(machine.priced_by()),
                     cell(answer.from ? answer.from->source : "roofline of the datasheet"),
                     cell(interval ? interval->of : ""));
}

json::Value json_of(const Answer& answer) {
  using json::Value;
  Value object = Value::object();
  object.set("kernel", Value::of(answer.asked.text));
  object.set("time_us", Value::of(microseconds(answer.estimate.time)));
  object.set("TFLOPs", Value::of(answer.flop_rate() * 1e-12));
  object.set("GBps", Value::of(answer.byte_rate() * 1e-9));
  object.set("basis", Value::of(name(answer.estimate.basis)));
  object.set("reach", Value::of(answer.estimate.reach));
  if (answer.from) {
    Value from = Value::object();
    from.set("source", Value::of(answer.from->source));
    from.set("machine", Value::of(answer.from->machine));
    from.set("samples", Value::of(answer.from->samples));
    from.set("residual", Value::of(answer.from->residual));
    object.set("law", std::move(from));
  }
  if (answer.interval) {
    Value interval = Value::object();
    interval.set("low_us", Value::of(microseconds(answer.interval->low)));
    interval.set("high_us", Value::of(microseconds(answer.interval->high)));
    interval.set("of", Value::of(answer.interval->of));
    object.set("interval", std::move(interval));
  }
  return object;
}

std::string json_of(const Machine& machine, const std::vector<Answer>& answers) {
  using json::Value;
  Value out = Value::object();
  out.set("gpu", Value::of(machine.gpu.name));
  out.set("priced_by", Value::of(machine.priced_by()));
  out.set("calibrated", Value::of(machine.pricing.uncalibrated.empty()));
  Value list = Value::array();
  for (const Answer& answer : answers)
    list.items.push_back(json_of(answer));
  out.set("kernels", std::move(list));
  return json::to_text(out) + "\n";
}

// What networks are trained in on the GPU.
models::Dtype usual_dtype(const cost::MachinePeaks& peaks) {
  if (peaks.bf16.count() > 0) return models::Dtype::bf16;
  return peaks.fp16.count() > 0 ? models::Dtype::fp16 : models::Dtype::fp32;
}

std::vector<AskedKernel> asked_kernels(const KernelCommandOptions& options, models::Dtype usual,
                                       const Refusal& refusal) {
  std::vector<AskedKernel> all;
  for (const std::string& spec : options.specs) {
    try {
      all.push_back(parse_kernel(spec, usual));
      if (const std::string why = refusal(all.back().kernel); !why.empty()) throw SpecError(why);
    } catch (const SpecError& error) {
      throw UsageError(fmt::format("{}: {}", escape_control(spec), error.what()));
    }
  }
  for (const std::string& path : options.files)
    for (AskedKernel& kernel : read_kernels(path, usual, refusal))
      all.push_back(std::move(kernel));
  return all;
}

}  // namespace

ExitCode kernel(const KernelCommandOptions& options, const Context& context) {
  if (options.specs.empty() && options.files.empty())
    throw UsageError("say a kernel, gemm:4096x4096x4096, or --file FILE.csv");
  const Machine machine = find_machine(options);
  const models::Dtype usual = usual_dtype(machine.peaks);
  std::string text = options.csv ? kColumns : "";
  std::vector<Answer> answers;
  const auto refusal = [&](const models::Kernel& kernel) {
    return why_not_on(machine.gpu, kernel);
  };
  for (AskedKernel& asked : asked_kernels(options, usual, refusal)) {
    Answer one = answer(machine, std::move(asked));
    if (options.csv) text += csv_of(machine, one);
    if (!options.csv && !options.json) text += (text.empty() ? "" : "\n") + text_of(machine, one);
    if (options.json) answers.push_back(std::move(one));
  }
  context.console.result(options.json ? json_of(machine, answers) : text);
  return ExitCode::done;
}

}  // namespace trainyard::cli
