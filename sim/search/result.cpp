#include "sim/search/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/base/version.h"

namespace trainyard::search {

using json::Value;
using simulate::TimeCategory;

namespace {

// Messages about one key are one reason, shown by the first of them.
class Reasons {
 public:
  void add(const std::string& words) {
    const std::string key = words.substr(0, words.find(": "));
    Count& own = counts_[key];
    ++own.count;
    if (own.words.empty()) own.words = words;
  }
  std::vector<Count> largest_first() const {
    std::vector<Count> list;
    for (const auto& [key, count] : counts_)
      list.push_back(count);
    std::stable_sort(list.begin(), list.end(),
                     [](const Count& a, const Count& b) { return a.count > b.count; });
    return list;
  }

 private:
  std::map<std::string, Count> counts_;
};

// Of an object what it says: "interleaved_1f1b 2".
std::string text_of(const Value& value) {
  if (value.is(json::Kind::string)) return value.text;
  if (!value.is(json::Kind::object)) return json::to_text(value, -1);
  std::string text;
  for (const json::Member& member : value.members)
    text += fmt::format("{}{}", text.empty() ? "" : " ", text_of(member.value));
  return text;
}

std::vector<std::string> values_of(const Trial& trial, const Space& space) {
  const Configuration configuration = space.configuration(trial.number);
  const Value patch = space.patch(configuration);
  std::vector<std::string> values;
  for (const SpaceAxis& axis : space.axes()) {
    const Value* value = json::find(patch, axis.pointer);
    const bool is_said = value != nullptr && !value->is(json::Kind::null);
    values.push_back(is_said ? text_of(*value) : "");
  }
  return values;
}

void count(const Trial& trial, SearchResult& result) {
  switch (trial.verdict) {
    case Verdict::invalid: ++result.invalid; break;
    case Verdict::same: ++result.same; break;
    case Verdict::unwanted: ++result.unwanted; break;
    case Verdict::does_not_fit: ++result.does_not_fit; break;
    case Verdict::never_ends: ++result.never_ends; break;
    case Verdict::slower: ++result.beaten; break;
    case Verdict::simulated: ++result.simulated; break;
  }
}

Value json_of(const std::vector<Count>& counts) {
  Value list = Value::array();
  for (const Count& own : counts) {
    Value& row = list.items.emplace_back(Value::object());
    row.set("configurations", Value::of(static_cast<std::int64_t>(own.count)));
    row.set("why", Value::of(own.words));
  }
  return list;
}

Value json_of(const std::vector<std::string>& words) {
  Value list = Value::array();
  for (const std::string& word : words)
    list.append(Value::of(word));
  return list;
}

// Of Trial::objectives, as it ends a key.
std::string_view unit_of(scenario::Objective objective) {
  switch (objective) {
    case scenario::Objective::step_time:
    case scenario::Objective::training_time: return "_s";
    case scenario::Objective::dollars: return "";  // the name says it
    case scenario::Objective::energy: return "_joules";
    case scenario::Objective::memory: return "_bytes";
  }
  return "";
}

Value json_of(const RankedTrial& ranked, const SearchResult& result) {
  const Trial& trial = ranked.trial;
  Value row = Value::object();
  row.set("number", Value::of(static_cast<std::int64_t>(trial.number)));
  row.set("set", json_of(ranked.sets));
  for (std::size_t i = 0; i < result.objectives.size(); ++i)
    row.set(
        fmt::format("objective_{}{}", name(result.objectives[i]), unit_of(result.objectives[i])),
        Value::of(trial.objectives[i]));
  row.set("step_time_s", Value::of(Seconds(trial.result->step).count()));
  row.set("mfu", Value::of(trial.result->mfu));
  row.set("peak_bytes", Value::of(trial.result->memory.count()));
  row.set("limits", Value::of(limits(*trial.result)));
  Value& breakdown = row.set("breakdown_s", Value::object());
  for (std::size_t category = 0; category < simulate::kTimeCategories; ++category)
    breakdown.set(simulate::name(static_cast<TimeCategory>(category)),
                  Value::of(Seconds(trial.result->breakdown[category]).count()));
  return row;
}

}  // namespace

std::string limits(const TrialResult& result) {
  std::vector<std::pair<double, std::string>> parts;
  for (std::size_t category = 0; category < simulate::kTimeCategories; ++category) {
    const auto own = static_cast<TimeCategory>(category);
    const double share = static_cast<double>(result.breakdown[category].count()) /
                         static_cast<double>(std::max<std::int64_t>(result.step.count(), 1));
    if (own == TimeCategory::compute || share < 0.005) continue;
    std::string words(simulate::name(own));
    std::replace(words.begin(), words.end(), '_', ' ');
    parts.emplace_back(share, std::move(words));
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::size_t kMost = 3;
  parts.resize(std::min(parts.size(), kMost));
  std::string text;
  for (const auto& [share, words] : parts)
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", words, 100 * share);
  return text.empty() ? "compute alone" : text;
}

namespace {

std::optional<SearchResult::Nearest> nearest(const std::vector<Trial>& trials,
                                             const scenario::SearchSpec& spec, const Space& space) {
  const Trial *leanest = nullptr, *shortest = nullptr;
  const auto step = [](const Trial& trial) {
    return trial.result ? trial.result->step : trial.least_step;
  };
  const auto order = [&](const Trial& trial) { return std::pair(!trial.result, step(trial)); };
  for (const Trial& trial : trials) {
    const bool too_long = trial.verdict == Verdict::unwanted && step(trial) > Duration(0);
    if (too_long && (shortest == nullptr || order(trial) < order(*shortest))) shortest = &trial;
    if (trial.verdict == Verdict::does_not_fit &&
        (leanest == nullptr || trial.least_memory < leanest->least_memory))
      leanest = &trial;
  }
  const auto sets = [&](const Trial& trial) {
    return space.sets(space.configuration(trial.number));
  };
  if (shortest != nullptr)
    return SearchResult::Nearest{
        sets(*shortest),
        fmt::format("a step takes {}{}, and may take {}", shortest->result ? "" : "at least ",
                    to_text(step(*shortest)), to_text(spec.step_time.value_or(Duration(0)))),
        shortest->result ? SearchResult::Need::simulated_time : SearchResult::Need::time};
  if (leanest == nullptr) return std::nullopt;
  return SearchResult::Nearest{sets(*leanest), leanest->why, SearchResult::Need::memory};
}

}  // namespace

SearchResult result_of(std::vector<Trial> trials, const scenario::ScenarioSet& set,
                       const scenario::SearchSpec& spec, const Space& space, bool exhaustive) {
  SearchResult result;
  result.name = set.base.name;
  result.gpus = set.base.plan.degrees.world_size();
  result.gpu = set.base.cluster.server.gpu.name;
  result.objectives = spec.objectives;
  result.exhaustive = exhaustive;
  for (const SpaceAxis& axis : space.axes())
    result.axes.push_back(axis.key);
  const Ranking ranking = rank(trials, spec);
  for (const Trial& trial : trials) {
    if (!exhaustive || trial.least.empty() || !is_beaten(trial.least, ranking, trials)) continue;
    ++result.would_leave_out;
    const auto at = static_cast<std::size_t>(&trial - trials.data());
    result.would_lose += std::count(ranking.best.begin(), ranking.best.end(), at) > 0 ? 1U : 0U;
  }
  if (!exhaustive) canonical(trials, spec);
  result.configurations = trials.size();
  for (const std::size_t at : ranking.best)
    result.best.push_back({trials[at], space.sets(space.configuration(trials[at].number)),
                           values_of(trials[at], space)});
  if (result.best.empty()) result.nearest = nearest(trials, spec, space);
  Reasons invalid, unwanted;
  std::array<std::uint64_t, kCauses> slower{};
  std::uint64_t twins = 0;
  for (std::size_t at = 0; at < trials.size(); ++at) {
    const Trial& trial = trials[at];
    count(trial, result);
    if (trial.verdict == Verdict::invalid) invalid.add(trial.why);
    if (trial.verdict == Verdict::unwanted) unwanted.add(trial.why);
    const bool loses = trial.verdict == Verdict::slower || trial.verdict == Verdict::simulated;
    const bool is_best = std::count(ranking.best.begin(), ranking.best.end(), at) > 0;
    if (!loses || is_best || ranking.best.empty()) continue;
    const bool is_twin = trial.result && std::any_of(ranking.best.begin(), ranking.best.end(),
                                                     [&](std::size_t best) {
                                                       return are_twins(trial, trials[best]);
                                                     });
    if (is_twin)
      ++twins;
    else
      ++slower[static_cast<std::size_t>(cause_of(trial, trials[ranking.best.front()]))];
  }
  result.why_invalid = invalid.largest_first();
  result.why_unwanted = unwanted.largest_first();
  for (std::size_t cause = 0; cause < kCauses; ++cause)
    if (slower[cause] > 0)
      result.why_slower.push_back({slower[cause], std::string(words(static_cast<Cause>(cause)))});
  if (twins > 0)
    result.why_slower.push_back({twins, "nothing: their result is that of one that is ranked"});
  std::stable_sort(result.why_slower.begin(), result.why_slower.end(),
                   [](const Count& a, const Count& b) { return a.count > b.count; });
  return result;
}

Value json_of(const SearchResult& result) {
  const auto number = [](std::uint64_t count) {
    return Value::of(static_cast<std::int64_t>(count));
  };
  Value out = Value::object();
  out.set("trainyard", Value::of(kVersion));
  out.set("name", Value::of(result.name));
  Value& objectives = out.set("objectives", Value::array());
  for (const scenario::Objective objective : result.objectives)
    objectives.append(Value::of(name(objective)));
  out.set("axes", json_of(result.axes));
  out.set("configurations", number(result.configurations));
  out.set("exhaustive", Value::of(result.exhaustive));
  Value& best = out.set("best", Value::array());
  for (const RankedTrial& ranked : result.best)
    best.append(json_of(ranked, result));
  if (result.nearest) {
    Value& row = out.set("nearest", Value::object());
    row.set("set", json_of(result.nearest->sets));
    row.set("why", Value::of(result.nearest->why));
    row.set("fits", result.nearest->need == SearchResult::Need::simulated_time ? Value::of(true)
                                                                               : Value::null());
  }
  Value& lost = out.set("others", Value::object());
  lost.set("invalid", number(result.invalid));
  lost.set("same", number(result.same));
  lost.set("unwanted", number(result.unwanted));
  lost.set("does_not_fit", number(result.does_not_fit));
  lost.set("never_ends", number(result.never_ends));
  lost.set("beaten_by_bound", number(result.beaten));
  lost.set("simulated", number(result.simulated));
  lost.set("why_invalid", json_of(result.why_invalid));
  lost.set("why_unwanted", json_of(result.why_unwanted));
  lost.set("why_slower", json_of(result.why_slower));
  if (!result.exhaustive) return out;
  Value& proof = out.set("bounds_against_results", Value::object());
  proof.set("would_leave_out", number(result.would_leave_out));
  proof.set("would_lose", number(result.would_lose));
  return out;
}

}  // namespace trainyard::search
