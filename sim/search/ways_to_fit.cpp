#include "sim/search/ways_to_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "sim/search/prospect.h"
#include "sim/search/set_text.h"
#include "sim/simulate/memory/memory_floor.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"

namespace trainyard::search {

using scenario::Scenario;
using simulate::StepReport;
using simulate::WaysToFit;

namespace {

using json::Value;

// A combination of changes that was simulated.
struct Trial {
  const Prospect* prospect = nullptr;
  StepReport outline;
  double time = 1;  // share of that of the job
};

// What reading a value again, or planning a kernel or an op, costs in events of the engine.
constexpr std::uint64_t kEventsPerEntry = 8;
// What sketches leave out of memory, and products of guesses more so. Of a thousand ways to fit
// GPTs of 22B to 530B the peak of one was less than .96 of its sketch.
constexpr double kSketchOff = 1.05, kProductOff = 4;

std::uint64_t entries_of(const plan::Cast& cast) {
  std::uint64_t count = 0;
  for (const plan::Role& role : cast.roles) {
    count += role.program.kernels.size();
    for (const engine::Block& block : role.program.blocks)
      count += block.ops.size();
  }
  return count;
}

class Search {
 public:
  Search(const Scenario& scenario, const StepReport& report, const WaysToFitOptions& options)
      : scenario_(scenario),
        report_(report),
        options_(options),
        job_(simulate::job_of(scenario, options.machines)),
        reading_(kEventsPerEntry * entries(scenario.document)),
        sketches_(job_),
        guesses_(report, sketches_.of(job_)) {}

  WaysToFit run() {
    add_singles();
    combine(1, prospects_.size());
    work_off();
    if (fastest().empty()) {
      combine(2, kMostTriples);
      work_off();
    }
    if (fastest().empty()) simulate_leanest();
    return result();
  }

 private:
  static constexpr std::size_t kMostTriples = 32, kMostLean = 3;

  bool may_go_on() {
    const bool may = spent_ + report_.events <= options_.most_events;
    cut_short_ = cut_short_ || !may;
    return may;
  }

  simulate::Job job_of(const Scenario& changed) const {
    simulate::Job job = job_;
    job.network = changed.network;
    job.recipe = changed.recipe;
    job.plan = changed.plan;
    return job;
  }

  // False: the scenario cannot be changed like this.
  bool read(Prospect& prospect) {
    spent_ += 2 * reading_;
    Value patch = Value::object();
    for (const Edit& edit : prospect.last)
      json::set(patch, edit.pointer, edit.value);
    prospect.scenario =
        with_patch(prospect.onto != nullptr ? *prospect.onto->scenario : scenario_, patch);
    if (!prospect.scenario) return false;
    try {
      prospect.guess = guesses_.of(sketches_.of(job_of(*prospect.scenario)));
    } catch (const OutOfRange&) {
      return false;
    }
    return true;
  }

  void wait_for_turn(Prospect& prospect) {
    const bool fits = guesses_.fits(prospect.guess);
    queue_.emplace(!fits, fits ? prospect.guess.time : prospect.guess.peak, queued_++, &prospect);
  }

  void add_singles() {
    for (std::size_t knob = 0; knob < fit_knobs().size(); ++knob) {
      const Prospect* fitting = nullptr;  // the change before, if it should fit
      for (const Edits& edits : fit_knobs()[knob].changes(scenario_)) {
        if (!may_go_on()) return;
        Prospect& single = prospects_.emplace_back();
        single.knobs = {knob};
        single.edits = single.last = edits;
        if (!read(single)) {
          prospects_.pop_back();
          continue;
        }
        singles_[name_of(knob, edits)] = &single;
        wait_for_turn(single);
        if (!guesses_.fits(single.guess) || !fit_knobs()[knob].graded) continue;
        if (fitting != nullptr && single.guess.time >= fitting->guess.time) break;
        fitting = &single;
      }
    }
  }

  // Adds one knob to the leanest combinations of so many that should not fit.
  void combine(std::size_t size, std::size_t most) {
    std::vector<Prospect*> bases;
    for (Prospect& prospect : prospects_)
      if (prospect.knobs.size() == size && !guesses_.fits(prospect.guess))
        bases.push_back(&prospect);
    std::stable_sort(bases.begin(), bases.end(), [](const Prospect* a, const Prospect* b) {
      return a->guess.peak < b->guess.peak;
    });
    bases.resize(std::min(bases.size(), most));
    for (Prospect* base : bases) {
      if (!may_go_on()) return;
      if (!base->scenario && !read(*base)) continue;
      for (std::size_t knob = base->knobs.back() + 1; knob < fit_knobs().size(); ++knob)
        for (Edits& edits : fit_knobs()[knob].changes(*base->scenario))
          if (!add(*base, knob, std::move(edits)) && fit_knobs()[knob].graded) break;
    }
  }

  // False: the change needs no other.
  bool add(const Prospect& onto, std::size_t knob, Edits edits) {
    const auto alone = singles_.find(name_of(knob, edits));
    if (alone != singles_.end() && guesses_.fits(alone->second->guess)) return false;
    Prospect& added = prospects_.emplace_back();
    added.knobs = onto.knobs;
    added.knobs.push_back(knob);
    added.edits = onto.edits;
    for (const Edit& edit : edits)
      set(added.edits, edit);
    added.last = std::move(edits);
    added.onto = &onto;
    added.guess =
        alone != singles_.end() ? guesses_.both(onto.guess, alone->second->guess) : onto.guess;
    wait_for_turn(added);
    return true;
  }

  // The fastest first that should fit, then the leanest. What is at the head is read, and comes to
  // its turn again by its own sketch, before it is simulated.
  void work_off() {
    std::size_t surprises = 0;
    while (!queue_.empty()) {
      Prospect& prospect = *std::get<Prospect*>(*queue_.begin());
      const bool should_fit = !std::get<bool>(*queue_.begin());
      queue_.erase(queue_.begin());
      if (!is_wanted(prospect)) continue;
      const double off = prospect.scenario ? kSketchOff : kProductOff;
      if (!should_fit && prospect.guess.peak > off * capacity()) continue;
      if (!should_fit && ++surprises > options_.most_surprises) return;
      if (!may_go_on()) return;
      if (!prospect.scenario) {
        if (read(prospect)) wait_for_turn(prospect);
      } else {
        simulate(prospect);
      }
    }
  }
  double capacity() const { return static_cast<double>(report_.memory.capacity.count()); }

  // Where as many kinds as are wanted fit, only what should be faster than the last of them is; of
  // a kind that fits, only what should be faster than that.
  bool is_wanted(const Prospect& prospect) const {
    const std::vector<const Trial*> found = fastest();
    if (found.size() >= options_.ways && prospect.guess.time >= found[options_.ways - 1]->time)
      return false;
    return std::none_of(found.begin(), found.end(), [&](const Trial* trial) {
      const Prospect& other = *trial->prospect;
      return same_changes(other.edits, prospect.edits) ||
             (other.knobs == prospect.knobs && prospect.guess.time >= trial->time);
    });
  }

  // Keeps what a run gives, unless the ledger tells that it does not fit.
  void simulate(const Prospect& prospect, bool whether_it_fits_or_not = false) {
    if (options_.progress)
      options_.progress(fmt::format("looking for ways to fit: {} simulated", trials_.size()));
    const KnownSteps::Step step = step_of(*prospect.scenario, whether_it_fits_or_not);
    spent_ += kEventsPerEntry * step.entries;
    if (!step.outline || (!whether_it_fits_or_not && !step.may_fit)) return;
    spent_ += step.outline->events;
    ++simulated_;
    if (step.outline->deadlock) return;
    auto trial = std::make_unique<Trial>(Trial{&prospect, *step.outline});
    trial->time = Seconds(trial->outline.simulated_step) / Seconds(report_.simulated_step);
    trials_.push_back(std::move(trial));
  }

  KnownSteps::Step step_of(const Scenario& scenario, bool whether_it_fits_or_not) const {
    if (options_.known == nullptr) return run_step(scenario, whether_it_fits_or_not);
    Value same = scenario.document;
    for (const char* name : {"name", "description"})
      same.erase(name);
    std::string text = json::to_text(same, -1);
    if (auto known = options_.known->find(text);
        known && (known->simulated || !whether_it_fits_or_not))
      return std::move(*known);
    KnownSteps::Step step = run_step(scenario, whether_it_fits_or_not);
    options_.known->add(std::move(text), step);
    return step;
  }

  KnownSteps::Step run_step(const Scenario& scenario, bool whether_it_fits_or_not) const {
    const simulate::Job job = job_of(scenario);
    KnownSteps::Step known;
    try {
      simulate::Step step;
      const simulate::StepMaker maker(job, {});
      maker.plan(step);
      known.entries = entries_of(step.plan.cast);
      known.may_fit = simulate::may_fit(job, step.plan);
      known.simulated = known.may_fit || whether_it_fits_or_not;
      if (!known.simulated) return known;
      maker.place(step);
      run_programs(job, {.detail = simulate::Detail::outline}, {}, step);
      known.outline = outline(job, step);
    } catch (const OutOfRange&) {
      return known;
    } catch (const lower::UnsupportedCollective&) {
      return known;  // its groups are not those that the chosen algorithms can serve
    }
    return known;
  }

  // Of all that was read and should peak lowest.
  void simulate_leanest() {
    std::vector<Prospect*> lean;
    for (Prospect& prospect : prospects_)
      lean.push_back(&prospect);
    std::stable_sort(lean.begin(), lean.end(), [](const Prospect* a, const Prospect* b) {
      return a->guess.peak < b->guess.peak;
    });
    std::size_t tried = 0;
    for (Prospect* prospect : lean) {
      if (tried == kMostLean || !may_go_on()) return;
      if (!prospect->scenario && !read(*prospect)) continue;
      simulate(*prospect, true);
      ++tried;
    }
  }

  // The fastest trial of each set of knobs that fits, fastest first, each way once.
  std::vector<const Trial*> fastest() const {
    std::vector<const Trial*> fitting;
    for (const auto& trial : trials_)
      if (trial->outline.has_room()) fitting.push_back(trial.get());
    std::stable_sort(fitting.begin(), fitting.end(), [](const Trial* a, const Trial* b) {
      return a->outline.simulated_step < b->outline.simulated_step;
    });
    std::vector<const Trial*> kept;
    for (const Trial* trial : fitting) {
      const Prospect& own = *trial->prospect;
      const bool again = std::any_of(kept.begin(), kept.end(), [&](const Trial* other) {
        return other->prospect->knobs == own.knobs ||
               same_changes(other->prospect->edits, own.edits);
      });
      if (!again) kept.push_back(trial);
    }
    return kept;
  }

  simulate::WayToFit way(const Trial& trial, const std::map<std::string, std::string>& said) const {
    simulate::WayToFit way;
    way.peak = trial.outline.memory.wanted;
    way.step_time = trial.outline.simulated_step;
    for (const Edit& edit : trial.prospect->edits) {
      const auto from = said.find(edit.pointer);
      way.changes.push_back({edit.pointer, std::string(edit.what),
                             from != said.end() ? from->second : "null",
                             json::to_text(edit.value, -1)});
      way.sets.push_back(set_text(edit.pointer, edit.value));
    }
    return way;
  }

  WaysToFit result() const {
    WaysToFit found;
    found.simulated = simulated_;
    found.cut_short = cut_short_;
    found.untried = untried_knobs(scenario_);
    if (trials_.empty()) return found;
    std::map<std::string, std::string> said;  // by pointer
    for (const json::Explained& value : explain(scenario_))
      said[value.pointer] = value.value;
    for (const Trial* trial : fastest())
      if (found.ways.size() < options_.ways) found.ways.push_back(way(*trial, said));
    if (!found.ways.empty()) return found;
    const auto least =
        std::min_element(trials_.begin(), trials_.end(), [](const auto& a, const auto& b) {
          return a->outline.memory.wanted < b->outline.memory.wanted;
        });
    found.closest.push_back(way(**least, said));
    return found;
  }

  const Scenario& scenario_;
  const StepReport& report_;
  const WaysToFitOptions& options_;
  simulate::Job job_;
  std::uint64_t reading_;  // of the scenario, in events
  simulate::JobSketches sketches_;
  Guesses guesses_;
  std::deque<Prospect> prospects_;
  std::map<std::string, const Prospect*> singles_;  // by name_of
  // Those whose turn is to come: whether they should not fit, their time or else their peak, and
  // when they came.
  std::set<std::tuple<bool, double, std::size_t, Prospect*>> queue_;
  std::size_t queued_ = 0;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::uint64_t spent_ = 0;  // events, and what else took their time
  int simulated_ = 0;
  bool cut_short_ = false;
};

}  // namespace

WaysToFit ways_to_fit(const Scenario& scenario, const StepReport& report,
                      const WaysToFitOptions& options) {
  return Search(scenario, report, options).run();
}

}  // namespace trainyard::search
