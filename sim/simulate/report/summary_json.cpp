#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/check.h"
#include "sim/base/version.h"
#include "sim/simulate/outlook/verdict.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/report/summary.h"
#include "sim/simulate/report/ways_text.h"

namespace trainyard::simulate {

using plan::kMemoryKinds;
using plan::MemoryKind;
namespace {

using Json = nlohmann::ordered_json;

// More ranks than this are summed up by minimum, median and maximum only.
constexpr std::size_t kRanksListed = 64;

// Throws nothing for text that is not UTF-8: the file stays readable, the bytes are replaced.
std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json breakdown(const Breakdown& times) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kTimeCategories; ++i)
    json[std::string(name(static_cast<TimeCategory>(i)))] = seconds(times[i]);
  return json;
}

// Minimum, median and maximum over all ranks, each category by itself.
Json spread(const std::vector<StepReport::RankBreakdown>& ranks) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kTimeCategories; ++i) {
    std::vector<std::pair<Duration, std::int64_t>> times;
    std::int64_t total = 0;
    for (const StepReport::RankBreakdown& rank : ranks) {
      times.emplace_back(rank.breakdown[i], rank.count);
      total += rank.count;
    }
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    Duration median = times.front().first;
    std::int64_t below = 0;
    for (const auto& [time, count] : times) {
      median = time;
      below += count;
      if (2 * below >= total) break;
    }
    json[std::string(name(static_cast<TimeCategory>(i)))] = {{"min", seconds(times.front().first)},
                                                             {"median", seconds(median)},
                                                             {"max", seconds(times.back().first)}};
  }
  return json;
}

Json ranks(const StepReport& report) {
  Json list = Json::array();
  for (const StepReport::RankBreakdown& rank : report.ranks) {
    if (list.size() == kRanksListed) break;
    list.push_back({{"rank", rank.rank},
                    {"count", rank.count},
                    {"stage", rank.stage},
                    {"peak_bytes", rank.memory.count()},
                    {"breakdown_s", breakdown(rank.breakdown)}});
  }
  return list;
}

Json gpu_shares(const StepReport& report) {
  Json list = Json::array();
  for (const GpuShare& share : report.gpu_shares)
    list.push_back({{"gpu", share.name},
                    {"ranks", share.ranks},
                    {"least_micro_batch", share.least_batch},
                    {"most_micro_batch", share.most_batch},
                    {"busy_fraction", share.busy},
                    {"peak_bytes", share.memory.count()},
                    {"capacity_bytes", share.capacity.count()}});
  return list;
}

Json memory(const MemoryReport& report) {
  Json categories = Json::object();
  for (std::size_t i = 0; i < kMemoryKinds; ++i)
    categories[std::string(name(static_cast<MemoryKind>(i)))] = report.by_category[i].count();
  Json owners = Json::array();
  for (const MemoryReport::Owner& owner : report.owners)
    owners.push_back(
        {{"name", owner.name}, {"category", name(owner.category)}, {"bytes", owner.bytes.count()}});
  Json activations = Json::array();
  for (const MemoryReport::ModuleBytes& part : report.activations)
    activations.push_back({{"module", part.module}, {"bytes", part.bytes.count()}});
  return {{"fits", report.fits},
          {"tight", report.is_tight},
          {"peak_bytes", report.peak.count()},
          {"wanted_bytes", report.wanted.count()},
          {"reserved_bytes", report.reserved.count()},
          {"allocated_bytes", report.allocated.count()},
          {"capacity_bytes", report.capacity.count()},
          {"peak_rank", report.peak_rank},
          {"peak_at_s", seconds(report.peak_at)},
          {"by_category", std::move(categories)},
          {"owners", std::move(owners)},
          {"activations", std::move(activations)}};
}

// null if nothing is offloaded, and for a capacity that the scenario does not state.
Json host_memory(const StepReport& report) {
  if (!report.host_memory) return nullptr;
  const HostMemoryReport& host = *report.host_memory;
  const auto capacity = [](Bytes bytes) {
    return bytes > Bytes(0) ? Json(bytes.count()) : Json(nullptr);
  };
  Json json = {{"fits", host.fits},
               {"rank", host.rank},
               {"bytes", host.memory.count()},
               {"by_category",
                {{"parameters", host.parameters.count()},
                 {"gradients", host.gradients.count()},
                 {"optimizer_state", host.optimizer_state.count()},
                 {"activations", host.activations.count()},
                 {"buffers", host.buffers.count()}}},
               {"nvme_bytes", host.nvme.count()},
               {"server_bytes", host.server_memory.count()},
               {"server_capacity_bytes", capacity(host.memory_capacity)},
               {"server_nvme_bytes", host.server_nvme.count()},
               {"server_nvme_capacity_bytes", capacity(host.nvme_capacity)}};
  if (!host.role.empty()) json["role"] = host.role;
  return json;
}

Json jobs(const StepReport& report) {
  Json list = Json::array();
  for (const JobShare& job : report.jobs)
    list.push_back({{"name", job.name},
                    {"ranks", job.ranks},
                    {"fits", job.fits},
                    {"tight", job.is_tight},
                    {"alone_s", seconds(job.alone)},
                    {"together_s", job.steps > 0 ? Json(seconds(job.together)) : Json(nullptr)},
                    {"slowdown", job.steps > 0 ? Json(job.slowdown()) : Json(nullptr)},
                    {"steps", job.steps}});
  return list;
}

// null where ranks wait for each other.
Json server_updates(const StepReport& report) {
  if (!report.server_updates) return nullptr;
  const UpdateReport& updates = *report.server_updates;
  return {{"updates_per_s", updates.per_s},
          {"mean_staleness", updates.mean_staleness()},
          {"most_stale", updates.most_stale()},
          {"updates_by_staleness", updates.staleness}};
}

// null where no input pipeline is said.
Json input(const StepReport& report) {
  if (!report.input) return nullptr;
  const InputReport& own = *report.input;
  const std::optional<int> needed = own.workers_needed();
  return {{"workers", own.workers},
          {"workers_of_server", own.workers_of_server},
          {"cores_of_server", own.cores > 0 ? Json(own.cores) : Json(nullptr)},
          {"prefetch_batches", own.prefetch},
          {"prepare_s", seconds(own.prepare)},
          {"read_s", seconds(own.read)},
          {"batch_every_s", seconds(own.between)},
          {"taken_every_s", seconds(own.taken)},
          {"keeps_up", own.keeps_up()},
          {"workers_needed", needed ? Json(*needed) : Json(nullptr)}};
}

Json basis(const StepReport& report) {
  Json json = Json::object();
  for (const Basis b :
       {Basis::measured, Basis::interpolated, Basis::extrapolated, Basis::analytic}) {
    double fraction = 0;
    for (const BasisShare& share : report.basis)
      if (share.basis == b) fraction += share.fraction;
    json[std::string(name(b))] = fraction;
  }
  return json;
}

Json sources(const StepReport& report) {
  Json list = Json::array();
  for (const SourceNote& note : report.sources)
    list.push_back({{"what", note.what},
                    {"basis", name(note.basis)},
                    {"source", note.source},
                    {"machine", note.machine},
                    {"residual", note.residual}});
  return list;
}

Json extrapolated(const StepReport& report) {
  Json list = Json::array();
  for (const Extrapolation& part : report.extrapolated)
    list.push_back({{"what", part.what}, {"why", part.why}, {"share", part.fraction}});
  return list;
}

// How the profile was made; null if it is not a fit of samples.
Json calibration(const StepReport& report) {
  if (!report.calibration) return nullptr;
  const cost::Calibration& made = *report.calibration;
  Json errors = Json::array();
  for (const cost::HeldOutError& error : made.errors)
    errors.push_back({{"what", error.what},
                      {"size", error.size},
                      {"fitted", error.fitted},
                      {"held_out", error.held_out},
                      {"rejected", error.rejected},
                      {"mape", error.mape},
                      {"median", error.median},
                      {"worst", error.worst}});
  return {{"program", made.program}, {"machine", made.machine},  {"date", made.date},
          {"driver", made.driver},   {"cuda", made.cuda},        {"samples", made.samples},
          {"errors", errors},        {"rejected", made.rejected}};
}

// Both ends are JSON already.
Json change(const ChangedValue& value) {
  return {{"key", value.pointer},
          {"what", value.what},
          {"from", Json::parse(value.from)},
          {"to", Json::parse(value.to)}};
}

Json ways(const StepReport& report, const std::vector<WayToFit>& list) {
  Json json = Json::array();
  for (const WayToFit& way : list) {
    Json changes = Json::array();
    for (const ChangedValue& value : way.changes)
      changes.push_back(change(value));
    const double before = seconds(report.simulated_step);
    json.push_back({{"text", describe(way)},
                    {"changes", std::move(changes)},
                    {"set", way.sets},
                    {"peak_bytes", way.peak.count()},
                    {"saved_bytes", (report.memory.wanted - way.peak).count()},
                    {"step_time_s", seconds(way.step_time)},
                    {"step_time_change",
                     before > 0 ? Json(seconds(way.step_time) / before - 1) : Json(nullptr)}});
  }
  return json;
}

// Null where nothing was looked for: the step fits, or it was not asked for.
void add_ways_to_fit(Json& json, const StepReport& report) {
  const bool looked = report.ways_to_fit.has_value();
  const WaysToFit none;
  const WaysToFit& found = looked ? *report.ways_to_fit : none;
  json["ways_to_fit"] = looked ? ways(report, found.ways) : Json(nullptr);
  json["closest_to_fit"] =
      found.closest.empty() ? Json(nullptr) : ways(report, found.closest).front();
  json["ways_simulated"] = looked ? Json(found.simulated) : Json(nullptr);
  json["ways_cut_short"] = looked ? Json(found.cut_short) : Json(nullptr);
  json["ways_not_tried"] = found.untried.empty() ? Json(nullptr) : Json(found.untried);
}

// Of a step whose time is known; the class is known of all.
void add_interval(Json& json, const StepReport& report) {
  const EstimateClass& of = report.estimate_class;
  json["class"] = {{"network", of.network}, {"profile", of.profile}, {"one_server", of.one_server}};
  json["interval"] = nullptr;
  if (!report.interval) return;
  const Interval& found = *report.interval;
  json["interval"] = {{"low_s", seconds(found.low)},
                      {"high_s", seconds(found.high)},
                      {"share", 0.8},
                      {"steps", found.steps},
                      {"of", found.of},
                      {"of_this_kind", found.is_of_kind}};
}

Json known(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json training(const StepReport& report) {
  if (!report.training) return nullptr;
  const TrainingTotal& total = *report.training;
  const bool runs = report.step_time.has_value();
  return {{"samples", total.samples},
          {"tokens", report.is_language ? Json(total.tokens) : Json(nullptr)},
          {"steps", total.steps},
          {"days", runs ? Json(total.days) : Json(nullptr)},
          {"gpu_hours", runs ? Json(total.gpu_hours) : Json(nullptr)},
          {"dollars_per_gpu_hour", known(total.gpu_hour)},
          {"dollars", known(total.dollars)},
          {"energy_kwh", known(total.kilowatt_hours)},
          {"energy_basis", total.kilowatt_hours ? Json("analytic") : Json(nullptr)}};
}

// Of the GPUs; null where nobody needs it.
Json energy(const StepReport& report) {
  if (!report.energy) return nullptr;
  const StepEnergy& found = *report.energy;
  return {{"step_j", found.joules},
          {"mean_w_per_gpu", found.watts},
          {"per_sample_j", found.joules_per_sample},
          {"per_token_j", known(found.joules_per_token)},
          {"settled_c", known(found.celsius)},
          {"basis", "analytic"}};
}

Json cloud_or_own(const StepReport& report) {
  if (!report.cloud_or_own) return nullptr;
  const CloudOrOwn& found = *report.cloud_or_own;
  Json by_use = Json::array(), curve = Json::array();
  for (const OwnAtUse& use : found.by_use)
    by_use.push_back({{"utilisation", use.utilisation},
                      {"own_gpu_hour", use.gpu_hour},
                      {"break_even_years", known(use.break_even_years)}});
  for (const SpentBy& point : found.curve)
    curve.push_back({{"years", point.years}, {"cloud", point.cloud}, {"own", point.own}});
  return {{"cloud_gpu_hour", found.cloud_gpu_hour},
          {"own_gpu_hour", found.own_gpu_hour},
          {"own_is_cheaper", found.own_is_cheaper},
          {"purchase_per_gpu", found.purchase},
          {"energy_per_gpu_hour", found.energy},
          {"fixed_per_gpu_hour", found.fixed},
          {"watts_per_gpu", found.watts},
          {"pue", found.pue},
          {"years", found.years},
          {"utilisation", found.utilisation},
          {"break_even_gpu_hours", known(found.break_even_hours)},
          {"break_even_years", known(found.break_even_years)},
          {"least_utilisation", known(found.least_utilisation)},
          {"training_cloud_dollars", known(found.training_cloud)},
          {"training_own_dollars", known(found.training_own)},
          {"by_utilisation", std::move(by_use)},
          {"curve", std::move(curve)}};
}

Json published(const StepReport& report) {
  Json list = Json::array();
  for (const Published& number : report.published)
    list.push_back({{"label", number.label},
                    {"metric", number.metric},
                    {"value", number.value},
                    {"predicted", number.predicted ? Json(*number.predicted) : Json(nullptr)}});
  return list;
}

std::string_view status(const StepReport& report) {
  if (report.deadlock) return "deadlock";
  return report.fits ? "ok" : "out_of_memory";
}

// A rate of a step that cannot run is not a number to be ranked.
Json if_runs(const StepReport& report, double value) {
  return report.step_time ? Json(value) : Json(nullptr);
}

void add_scenario(Json& json, const StepReport& report) {
  json["name"] = report.name;
  json["label"] = label_of(report);
  json["description"] = report.description;
  json["status"] = status(report);
  json["reason"] = report.step_time ? Json(nullptr) : Json(why_no_time(report));
  json["world_size"] = report.world_size;
  json["gpu"] = report.gpu;
  json["server"] = report.server;
  json["servers"] = report.servers;
  json["parallelism"] = {{"tp", report.tensor},
                         {"cp", report.context},
                         {"ep", report.expert},
                         {"dp", report.data},
                         {"pp", report.pipeline}};
  json["parameters"] = report.parameters;
  if (report.trained != report.parameters) json["trained_parameters"] = report.trained;
  json["global_batch"] = report.global_batch;
  json["sequence_length"] = report.is_language ? Json(report.sequence_length) : Json(nullptr);
  if (report.document_length > 0) json["document_length"] = report.document_length;
}

void add_rates(Json& json, const StepReport& report) {
  json["step_time_s"] = report.step_time ? Json(seconds(*report.step_time)) : Json(nullptr);
  json["samples_per_s"] = if_runs(report, report.samples_per_s);
  json["tokens_per_s"] = report.is_language ? if_runs(report, report.tokens_per_s) : Json(nullptr);
  json["tokens_per_s_per_gpu"] =
      report.is_language ? if_runs(report, report.tokens_per_s_per_gpu) : Json(nullptr);
  json["model_flops"] = report.model_flops;
  json["model_tflops_per_gpu"] = if_runs(report, report.model_tflops_per_gpu);
  json["mfu"] = if_runs(report, report.mfu);
  json["hfu"] = if_runs(report, report.hfu);
  const std::optional<double> share = full_square_mfu(report);
  json["full_square"] = {
      {"model_flops", report.full_square_flops},
      {"model_tflops_per_gpu", if_runs(report, report.full_square_tflops_per_gpu)},
      {"mfu", share ? Json(*share) : Json(nullptr)}};
}

Json object(const StepReport& report, const std::optional<Baseline>& baseline) {
  Json json = Json::object();
  add_scenario(json, report);
  add_rates(json, report);
  if (baseline) {
    const std::optional<double> factor = speedup(report, *baseline);
    json["baseline"] = baseline->name;
    json["speedup"] = factor ? Json(*factor) : Json(nullptr);
  }
  add_interval(json, report);
  json["training"] = training(report);
  json["energy"] = energy(report);
  json["cloud_or_own"] = cloud_or_own(report);
  json["published"] = published(report);
  json["simulated_step_s"] = seconds(report.simulated_step);
  json["slowest_rank"] = report.slowest_rank;
  json["breakdown_s"] = breakdown(report.breakdown);
  json["breakdown_over_ranks_s"] = spread(report.ranks);
  json["ranks"] = ranks(report);
  json["gpu_shares"] = gpu_shares(report);
  json["jobs"] = jobs(report);
  json["pipeline"] = {{"bubble_fraction", report.bubble_fraction},
                      {"schedule", report.schedule},
                      {"stages", report.stages},
                      {"chunks", report.chunks},
                      {"microbatches", report.microbatches},
                      {"bytes_sent", report.pipeline_bytes.count()}};
  if (report.overlap_passes) json["pipeline"]["overlap_passes"] = true;
  json["memory"] = memory(report.memory);
  add_ways_to_fit(json, report);
  json["host_memory"] = host_memory(report);
  json["input"] = input(report);
  json["server_updates"] = server_updates(report);
  json["calibrated"] = is_calibrated(report);
  json["uncalibrated"] = report.uncalibrated;
  json["profile"] = report.profile;
  json["fidelity"] = report.fidelity;
  json["basis"] = basis(report);
  json["sources"] = sources(report);
  json["extrapolated"] = extrapolated(report);
  json["calibration"] = calibration(report);
  json["slowest_gpu"] = {{"gpus", report.slowest_gpu.gpus},
                         {"slowdown", report.slowest_gpu.slowdown}};
  json["findings"] = Json::array();
  for (const Finding& finding : findings(report))
    json["findings"].push_back({{"category", name(finding.category)},
                                {"share", finding.share},
                                {"time_s", seconds(finding.time)},
                                {"text", finding.text}});
  json["verdict"] = verdict(report);
  json["costliest"] = costliest(report);
  json["engine"] = {{"events", report.events},
                    {"ops", report.ops},
                    {"ranks", report.world_size},
                    {"classes", report.classes}};
  for (const scenario::Assumption& assumption : report.assumed)
    json["assumed"].push_back(
        {{"pointer", assumption.pointer}, {"value", assumption.value}, {"why", assumption.why}});
  if (!report.software.empty()) {
    Json habits = Json::array();
    for (const scenario::Assumption& habit : report.habits)
      habits.push_back({{"pointer", habit.pointer}, {"value", habit.value}, {"source", habit.why}});
    json["software"] = {{"name", report.software}, {"habits", std::move(habits)}};
  }
  json["warnings"] = all_warnings(report);
  if (report.monitor) json["monitor"] = Json::parse(monitor_json(*report.monitor));
  return json;
}

// The first key of every result; it tells a result from other files.
Json head() {
  return {{"trainyard", kVersion}};
}

}  // namespace

std::string to_json(const StepReport& report, const std::optional<Baseline>& baseline, int indent) {
  Json json = head();
  json.update(object(report, baseline));
  return dump(json, indent);
}

std::string compare_json(std::string_view title, std::span<const StepReport> reports,
                         std::size_t baseline, int indent) {
  TRAINYARD_CHECK(baseline < reports.size(), "baseline {} of {} variants", baseline,
                  reports.size());
  const Baseline base = baseline_of(reports, baseline);
  Json json = head();
  json["name"] = title;
  json["baseline"] = base.name;
  json["variants"] = Json::array();
  for (const StepReport& report : reports)
    json["variants"].push_back(object(report, base));
  return dump(json, indent);
}

}  // namespace trainyard::simulate
