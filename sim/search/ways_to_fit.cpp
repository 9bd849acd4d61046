#include "sim/search/ways_to_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/json/parse.h"
#include "sim/search/fit_knobs.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"

namespace trainyard::search {

using plan::kMemoryKinds;
using scenario::Scenario;
using simulate::StepReport;
using simulate::WaysToFit;

namespace {

using json::Value;

// Memory by category and time against those of the job as it is.
struct Shares {
  std::array<double, kMemoryKinds> memory;
  double time = 1;
};

// A combination of changes that was simulated.
struct Trial {
  std::vector<std::size_t> knobs;  // ascending
  Edits edits;
  Scenario scenario;
  StepReport outline;
  Shares shares;
};

// One that may be: a change on top of a trial, or of the job.
struct Candidate {
  const Trial* onto = nullptr;
  std::size_t knob = 0;
  Edits edits;  // of that knob alone
  double time = 0, peak = 0;
  bool should_fit = false;
};

// What reading a value again, or planning a kernel or an op, costs in events of the engine.
constexpr std::uint64_t kEventsPerEntry = 8;

std::uint64_t entries(const Value& value) {
  std::uint64_t count = 1;
  for (const Value& item : value.items)
    count += entries(item);
  for (const json::Member& member : value.members)
    count += entries(member.value);
  return count;
}

std::uint64_t entries(const plan::Cast& cast) {
  std::uint64_t count = 0;
  for (const plan::Role& role : cast.roles) {
    count += role.program.kernels.size();
    for (const engine::Block& block : role.program.blocks)
      count += block.ops.size();
  }
  return count;
}

void set(Edits& edits, const Edit& added) {
  const auto same = std::find_if(edits.begin(), edits.end(),
                                 [&](const Edit& edit) { return edit.pointer == added.pointer; });
  if (same == edits.end())
    edits.push_back(added);
  else
    same->value = added.value;
}

// The same change of the same knob has the same name on any scenario: dp beside tp does not count.
std::string name_of(std::size_t knob, const Edits& edits) {
  std::string name = fmt::format("{}", knob);
  for (const Edit& edit : edits)
    if (!edit.what.empty())
      name += fmt::format(" {}={}", edit.pointer, json::to_text(edit.value, -1));
  return name;
}

// The value of --set that writes it: a word stands without quotes where it is read as a word.
std::string set_text(const Edit& edit) {
  std::string key = edit.pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  std::vector<Diagnostic> not_json;
  if (edit.value.is(json::Kind::string)) json::parse_text(edit.value.text, "", not_json);
  return fmt::format("{}={}", key,
                     not_json.empty() ? json::to_text(edit.value, -1) : edit.value.text);
}

class Search {
 public:
  Search(const Scenario& scenario, const StepReport& report, const WaysToFitOptions& options)
      : scenario_(scenario),
        report_(report),
        options_(options),
        job_(simulate::job_of(scenario)),
        reading_(kEventsPerEntry * entries(scenario.document)) {
    for (const json::Explained& value : explain(scenario))
      said_[value.pointer] = value.value;
  }

  WaysToFit run() {
    try_singles();
    try_combinations(2);
    if (fastest().empty()) try_combinations(3);
    return result();
  }

 private:
  bool may_simulate() {
    const bool may = spent_ + report_.events <= options_.most_events;
    cut_short_ = cut_short_ || !may;
    return may;
  }

  // What should not fit is a surprise if it does: worth half of the events, if something is found.
  bool may_simulate(const Candidate& candidate) {
    if (candidate.should_fit || fastest().empty()) return may_simulate();
    return spent_ + report_.events <= options_.most_events / 2;
  }

  // Null: its groups are not those that the chosen algorithms can serve.
  static std::unique_ptr<simulate::Step> step_of(const Scenario& changed,
                                                 const simulate::Job& job) {
    try {
      return simulate::step_of(changed, job,
                               {.unfold = false, .run = true, .detail = simulate::Detail::outline});
    } catch (const ScenarioError&) {
      return nullptr;
    }
  }

  // Null: the scenario cannot be changed like this, or never finishes then.
  const Trial* simulate(const Trial* onto, std::size_t knob, const Edits& edits) {
    spent_ += reading_;
    Value patch = Value::object();
    for (const Edit& edit : edits)
      json::set(patch, edit.pointer, edit.value);
    std::optional<Scenario> changed =
        with_patch(onto != nullptr ? onto->scenario : scenario_, patch);
    if (!changed) return nullptr;
    simulate::Job job = job_;
    job.network = changed->network;
    job.recipe = changed->recipe;
    job.plan = changed->plan;
    if (options_.progress)
      options_.progress(fmt::format("looking for ways to fit: {} simulated", trials_.size()));
    const std::unique_ptr<simulate::Step> step = step_of(*changed, job);
    if (!step) return nullptr;
    Trial trial;
    trial.outline = outline(job, *step);
    spent_ += trial.outline.events + kEventsPerEntry * entries(step->plan.cast);
    ++simulated_;
    if (trial.outline.deadlock) return nullptr;
    if (onto != nullptr) {
      trial.knobs = onto->knobs;
      trial.edits = onto->edits;
    }
    trial.knobs.push_back(knob);
    for (const Edit& edit : edits)
      set(trial.edits, edit);
    trial.scenario = std::move(*changed);
    trial.shares = shares_of(trial.outline);
    trials_.push_back(std::make_unique<Trial>(std::move(trial)));
    return trials_.back().get();
  }

  Shares shares_of(const StepReport& outline) const {
    Shares shares;
    for (std::size_t c = 0; c < kMemoryKinds; ++c) {
      const auto before = static_cast<double>(report_.memory.by_category[c].count());
      const auto after = static_cast<double>(outline.memory.by_category[c].count());
      shares.memory[c] = before > 0 ? after / before : 1;
    }
    shares.time = Seconds(outline.simulated_step) / Seconds(report_.simulated_step);
    return shares;
  }

  void try_singles() {
    for (std::size_t knob = 0; knob < fit_knobs().size(); ++knob) {
      const Trial* fitting = nullptr;  // the change before, if it fits
      for (const Edits& edits : fit_knobs()[knob].changes(scenario_)) {
        if (!may_simulate()) return;
        const Trial* trial = simulate(nullptr, knob, edits);
        if (trial == nullptr) continue;
        singles_[name_of(knob, edits)] = trial;
        if (!trial->outline.fits || !fit_knobs()[knob].graded) continue;
        if (fitting != nullptr && trial->shares.time >= fitting->shares.time) break;
        fitting = trial;
      }
    }
  }

  // Combinations of `size` knobs: one more on top of those of one knob less that do not fit.
  void try_combinations(std::size_t size) {
    std::vector<Candidate> candidates;
    for (const auto& known : trials_) {
      const Trial& trial = *known;
      if (trial.knobs.size() + 1 != size || trial.outline.fits) continue;
      for (std::size_t knob = trial.knobs.back() + 1; knob < fit_knobs().size(); ++knob)
        for (Edits& edits : fit_knobs()[knob].changes(trial.scenario))
          if (!consider(trial, knob, std::move(edits), candidates) && fit_knobs()[knob].graded)
            break;
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       if (a.should_fit != b.should_fit) return a.should_fit;
                       return a.should_fit ? a.time < b.time : a.peak < b.peak;
                     });
    std::size_t tried = 0;
    for (const Candidate& candidate : candidates) {
      if (!is_wanted(candidate)) continue;
      if (tried == options_.most_combinations || !may_simulate(candidate)) return;
      if (simulate(candidate.onto, candidate.knob, candidate.edits) != nullptr) ++tried;
    }
  }

  // Where as many kinds as are wanted fit, only what should be faster than the last of them is.
  bool is_wanted(const Candidate& candidate) const {
    const std::vector<const Trial*> found = fastest();
    if (found.size() < options_.ways) return true;
    return candidate.time < found[options_.ways - 1]->shares.time;
  }

  // False: the change needs no other.
  bool consider(const Trial& onto, std::size_t knob, Edits edits,
                std::vector<Candidate>& candidates) {
    const auto alone = singles_.find(name_of(knob, edits));
    if (alone != singles_.end() && alone->second->outline.fits) return false;
    Candidate candidate{&onto, knob, std::move(edits)};
    candidate.time = onto.shares.time;
    if (alone != singles_.end()) candidate.time *= alone->second->shares.time;
    for (std::size_t c = 0; c < kMemoryKinds; ++c) {
      double bytes = static_cast<double>(report_.memory.by_category[c].count());
      bytes *= onto.shares.memory[c];
      if (alone != singles_.end()) bytes *= alone->second->shares.memory[c];
      candidate.peak += bytes;
    }
    candidate.should_fit = candidate.peak <= static_cast<double>(report_.memory.capacity.count());
    candidates.push_back(std::move(candidate));
    return true;
  }

  // Two ways of knobs to the same file: tensor parallelism that brings sequence parallelism along
  // is no other way than the two one after the other.
  static bool same_changes(const Edits& a, const Edits& b) {
    return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const Edit& edit) {
             return std::any_of(b.begin(), b.end(), [&](const Edit& other) {
               return edit.pointer == other.pointer && same(edit.value, other.value);
             });
           });
  }

  // The fastest trial of each set of knobs that fits, fastest first, each way once.
  std::vector<const Trial*> fastest() const {
    std::vector<const Trial*> fitting;
    for (const auto& trial : trials_)
      if (trial->outline.fits) fitting.push_back(trial.get());
    std::stable_sort(fitting.begin(), fitting.end(), [](const Trial* a, const Trial* b) {
      return a->outline.simulated_step < b->outline.simulated_step;
    });
    std::vector<const Trial*> kept;
    for (const Trial* trial : fitting) {
      const bool again = std::any_of(kept.begin(), kept.end(), [&](const Trial* other) {
        return other->knobs == trial->knobs || same_changes(other->edits, trial->edits);
      });
      if (!again) kept.push_back(trial);
    }
    return kept;
  }

  simulate::WayToFit way(const Trial& trial) const {
    simulate::WayToFit way;
    way.peak = trial.outline.memory.peak;
    way.step_time = trial.outline.simulated_step;
    for (const Edit& edit : trial.edits) {
      const auto said = said_.find(edit.pointer);
      way.changes.push_back({edit.pointer, std::string(edit.what),
                             said != said_.end() ? said->second : "null",
                             json::to_text(edit.value, -1)});
      way.sets.push_back(set_text(edit));
    }
    return way;
  }

  WaysToFit result() const {
    WaysToFit found;
    found.simulated = simulated_;
    found.cut_short = cut_short_;
    for (const Trial* trial : fastest())
      if (found.ways.size() < options_.ways) found.ways.push_back(way(*trial));
    if (!found.ways.empty() || trials_.empty()) return found;
    const auto least =
        std::min_element(trials_.begin(), trials_.end(), [](const auto& a, const auto& b) {
          return a->outline.memory.peak < b->outline.memory.peak;
        });
    found.closest.push_back(way(**least));
    return found;
  }

  const Scenario& scenario_;
  const StepReport& report_;
  const WaysToFitOptions& options_;
  simulate::Job job_;
  std::map<std::string, std::string> said_;  // by pointer
  std::vector<std::unique_ptr<Trial>> trials_;
  std::map<std::string, const Trial*> singles_;  // by name_of
  std::uint64_t reading_;                        // of the scenario, in events
  std::uint64_t spent_ = 0;                      // events, and what else took their time
  int simulated_ = 0;
  bool cut_short_ = false;
};

}  // namespace

WaysToFit ways_to_fit(const Scenario& scenario, const StepReport& report,
                      const WaysToFitOptions& options) {
  return Search(scenario, report, options).run();
}

}  // namespace trainyard::search
