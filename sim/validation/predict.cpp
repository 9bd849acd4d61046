#include "sim/validation/predict.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/simulate/simulate.h"

namespace trainyard::validation {
namespace {

using json::Value;

// What the patch says over what all records of the file say.
Value document_of(const RecordSet& set, const Record& record, const ScenarioPatch& part,
                  const PredictOptions& options) {
  std::vector<Diagnostic> found;
  Value patch = scenario::with_bases(part.patch, options.root, found);
  if (!found.empty()) throw ScenarioError(std::move(found));
  Value document = set.base;
  scenario::spell_out_names(document);
  json::merge_patch(document, patch);
  if (document.find("version") == nullptr) document.set("version", Value::of(1));
  if (document.find("name") == nullptr) document.set("name", Value::of(record.name));
  if (!options.software.empty() && document.find("software") == nullptr)
    document.set("software", Value::of(options.software));
  return document;
}

// The same mistakes as the file of records has them: whose scenario it is, and where it says so.
std::vector<Diagnostic> in_file(std::vector<Diagnostic> list, const RecordSet& set,
                                const Record& record, const ScenarioPatch& part) {
  for (Diagnostic& one : list) {
    const bool is_own = json::find(part.patch, one.pointer) != nullptr && !one.pointer.empty();
    const bool is_common =
        !is_own && !one.pointer.empty() && json::find(set.base, one.pointer) != nullptr;
    if (one.at.file != set.file && one.at.line > 0) continue;
    if (!is_own && !is_common) one.at = record.at;
    one.pointer = (is_common ? set.base_pointer : part.pointer) + one.pointer;
    one.message = fmt::format("of \"{}\": {}", record.name, one.message);
  }
  return list;
}

Prediction::Memory sums(Bytes allocated, Bytes reserved, Bytes device) {
  return {static_cast<double>(allocated.count()), static_cast<double>(reserved.count()),
          static_cast<double>(device.count())};
}

Prediction predict(const Value& document, const Record& record, const std::string& root) {
  const scenario::Scenario scenario = scenario::scenario_of(document, {.root = root});
  simulate::SimulateOptions options;
  options.timeline = false;
  const simulate::StepReport report = simulate::simulate(scenario, options).report;
  if (report.deadlock)
    throw ScenarioError({{Severity::error, record.at, "", "never finishes: " + *report.deadlock,
                          "run its scenario by itself"}});
  Prediction out;
  out.seconds = Seconds(report.simulated_step).count();
  out.fits = report.fits;
  out.is_tight = report.memory.is_tight;
  const simulate::MemoryReport& fullest = report.memory;
  out.fullest = sums(fullest.allocated, fullest.reserved, fullest.peak);
  out.rank_0 = out.fullest;
  for (const simulate::StepReport::RankBreakdown& rank : report.ranks)
    if (rank.rank == 0) out.rank_0 = sums(rank.allocated, rank.reserved, rank.memory);
  return out;
}

using Groups = std::map<std::pair<std::size_t, std::string>, std::vector<Alternative>>;

SetScore score_of(const std::vector<const PredictedSet*>& sets) {
  SetScore score;
  std::vector<Pair> times, memories;
  Groups groups;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (const PredictedRecord& row : sets[i]->rows) {
      const Prediction& said = row.prediction;
      if (row.record.fits) score.verdicts.add({said.fits, said.is_tight}, *row.record.fits);
      if (const std::optional<Pair> memory = row.memory()) memories.push_back(*memory);
      const std::optional<Pair> time = row.seconds();
      if (!time) continue;
      times.push_back(*time);
      if (!row.record.group.empty())
        groups[{i, row.record.group}].push_back({*time, {said.fits, said.is_tight}});
    }
  }
  std::vector<std::vector<Alternative>> choices;
  for (auto& [name, alternatives] : groups)
    choices.push_back(std::move(alternatives));
  score.time = score_errors(times);
  score.memory = score_errors(memories);
  score.rank_correlation = rank_correlation(times);
  score.regret = pick_regret(choices);
  return score;
}

}  // namespace

double Prediction::memory(const MeasuredMemory& measured) const {
  const Memory& of = measured.of_rank_0 ? rank_0 : fullest;
  switch (measured.sum) {
    case MemorySum::allocated: return of.allocated;
    case MemorySum::reserved: return of.reserved;
    case MemorySum::device: return of.device;
  }
  return of.device;
}

Prediction predict(const RecordSet& set, const Record& record, const PredictOptions& options,
                   std::vector<Diagnostic>& problems) {
  std::optional<Prediction> best;
  std::vector<Diagnostic> found;
  for (std::size_t i = 0; i < record.scenarios.size(); ++i) {
    const ScenarioPatch& part = record.scenarios[i];
    try {
      Prediction one = predict(document_of(set, record, part, options), record, options.root);
      one.scenario = i;
      const auto order = [](const Prediction& of) {
        return std::tuple(!of.fits, of.is_tight, of.seconds);
      };
      if (!best || order(one) < order(*best)) best = one;
    } catch (const ScenarioError& error) {
      for (Diagnostic& problem : in_file(error.diagnostics(), set, record, part))
        found.push_back(std::move(problem));
    }
  }
  if (!best) throw ScenarioError(std::move(found));
  problems.insert(problems.end(), found.begin(), found.end());
  return *best;
}

std::optional<Pair> PredictedRecord::seconds() const {
  if (!record.seconds) return std::nullopt;
  return Pair{prediction.seconds, *record.seconds};
}

std::optional<Pair> PredictedRecord::memory() const {
  if (!record.memory) return std::nullopt;
  return Pair{prediction.memory(*record.memory), record.memory->bytes};
}

SetScore score_of(const PredictedSet& set) {
  return score_of(std::vector<const PredictedSet*>{&set});
}

SetScore score_of_all(std::span<const PredictedSet> sets) {
  std::vector<const PredictedSet*> all;
  for (const PredictedSet& set : sets)
    all.push_back(&set);
  return score_of(all);
}

std::optional<ErrorScore> score_of_steps(std::span<const PredictedSet> sets) {
  std::vector<ErrorScore> scores;
  for (const PredictedSet& set : sets)
    if (const std::optional<ErrorScore> time = score_of(set).time) scores.push_back(*time);
  return score_sources(scores);
}

}  // namespace trainyard::validation
