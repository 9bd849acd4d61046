#include "sim/search/best.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "sim/base/threads/in_order.h"

namespace trainyard::search {

using scenario::SearchSpec;
using simulate::TimeCategory;

namespace {

// Judged in one go by a thread. No number here depends on the threads.
constexpr std::size_t kJudgedTogether = 64;

constexpr std::array<std::pair<std::string_view, Verdict>, 7> kVerdicts = {
    {{"invalid", Verdict::invalid},
     {"same", Verdict::same},
     {"unwanted", Verdict::unwanted},
     {"does_not_fit", Verdict::does_not_fit},
     {"never_ends", Verdict::never_ends},
     {"slower", Verdict::slower},
     {"simulated", Verdict::simulated}}};

class Searching {
 public:
  Searching(const Judge& judge, const Space& space, const SearchSpec& spec,
            const SearchOptions& options)
      : judge_(judge), spec_(spec), options_(options) {
    for (std::uint64_t number = options.shard.index; number < space.size();
         number += options.shard.count)
      numbers_.push_back(number);
    progress_.of = numbers_.size();
  }

  std::vector<Trial> run() {
    look();
    simulate();
    for (const std::size_t at : open_)
      if (trials_[at].verdict == Verdict::slower && !is_known(trials_[at])) tell(trials_[at]);
    return std::move(trials_);
  }

 private:
  bool is_known(const Trial& trial) const { return options_.known.count(trial.number) > 0; }

  void tell(const Trial& trial) {
    if (options_.tell) options_.tell(trial);
  }

  Trial outlook(std::uint64_t number) const {
    const auto known = options_.known.find(number);
    return known != options_.known.end() ? known->second : judge_.outlook(number);
  }

  void look() {
    const std::size_t blocks = (numbers_.size() + kJudgedTogether - 1) / kJudgedTogether;
    auto judged = in_order<std::vector<Trial>>(blocks, options_.jobs, [&](std::size_t block) {
      std::vector<Trial> trials;
      const std::size_t begin = block * kJudgedTogether;
      const std::size_t end = std::min(begin + kJudgedTogether, numbers_.size());
      for (std::size_t at = begin; at < end; ++at)
        trials.push_back(outlook(numbers_[at]));
      const std::scoped_lock lock(mutex_);
      for (const Trial& trial : trials)
        if (trial.verdict != Verdict::slower && !is_known(trial)) tell(trial);
      progress_.judged += trials.size();
      if (options_.progress) options_.progress(progress_);
      return trials;
    });
    for (std::vector<Trial>& block : judged)
      std::move(block.begin(), block.end(), std::back_inserter(trials_));
    for (std::size_t at = 0; at < trials_.size(); ++at)
      if (trials_[at].verdict == Verdict::slower) open_.push_back(at);
    std::stable_sort(open_.begin(), open_.end(), [&](std::size_t a, std::size_t b) {
      return trials_[a].least < trials_[b].least;
    });
  }

  void simulate() {
    std::size_t next = 0;
    while (next < open_.size()) {
      const Ranking ranking = rank(trials_, spec_);
      const std::size_t together = size_of_wave(ranking, next);
      std::vector<std::size_t> wave;
      for (; next < open_.size() && wave.size() < together; ++next)
        if (options_.exhaustive || !is_beaten(trials_[open_[next]].least, ranking, trials_))
          wave.push_back(open_[next]);
      in_order<int>(wave.size(), options_.jobs, [&](std::size_t i) {
        Trial& trial = trials_[wave[i]];
        judge_.simulate(trial);
        const std::scoped_lock lock(mutex_);
        tell(trial);
        ++progress_.simulated;
        progress_.left = open_.size() - next;
        if (options_.progress) options_.progress(progress_);
        return 0;
      });
    }
  }

  // Simulated before the next look at what is left: as many as are missing, then a part of what is
  // not beaten yet, so that few are simulated in vain and many threads have work.
  std::size_t size_of_wave(const Ranking& ranking, std::size_t next) const {
    constexpr std::size_t kLeast = 4, kMost = 64, kParts = 8;
    const bool is_short = spec_.objectives.size() == 1 && ranking.last.empty();
    if (is_short && !options_.exhaustive)
      return std::max(spec_.best - std::min(spec_.best, ranking.best.size()), kLeast);
    const auto left = std::count_if(
        open_.begin() + static_cast<std::ptrdiff_t>(next), open_.end(), [&](std::size_t at) {
          return options_.exhaustive || !is_beaten(trials_[at].least, ranking, trials_);
        });
    return std::clamp(static_cast<std::size_t>(left) / kParts, kLeast, kMost);
  }

  const Judge& judge_;
  const SearchSpec& spec_;
  const SearchOptions& options_;
  std::vector<std::uint64_t> numbers_;
  std::vector<Trial> trials_;
  std::vector<std::size_t> open_;  // into trials_: those that only a simulation can tell, in order
  std::mutex mutex_;
  SearchProgress progress_;
};

bool is_no_worse(std::span<const double> a, std::span<const double> b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] > b[i]) return false;
  return true;
}

// No more in either, and less in one.
bool dominates(const std::vector<double>& a, const std::vector<double>& b) {
  return is_no_worse(a, b) && a != b;
}

Cause cause_of(TimeCategory category) {
  switch (category) {
    case TimeCategory::compute: return Cause::compute;
    case TimeCategory::exposed_tp: return Cause::tensor;
    case TimeCategory::exposed_cp:
    case TimeCategory::exposed_ep:
    case TimeCategory::exposed_dp:
    case TimeCategory::exposed_pp: return Cause::exchange;
    case TimeCategory::bubble: return Cause::bubble;
    case TimeCategory::optimizer:
    case TimeCategory::host_optimizer: return Cause::update;
    default: return Cause::other;
  }
}

std::array<double, kCauses> causes_of(const TrialResult& result) {
  std::array<double, kCauses> causes{};
  for (std::size_t category = 0; category < simulate::kTimeCategories; ++category) {
    const Cause cause = cause_of(static_cast<TimeCategory>(category));
    causes[static_cast<std::size_t>(cause)] += Seconds(result.breakdown[category]).count();
  }
  return causes;
}

}  // namespace

std::string_view name(Verdict verdict) {
  for (const auto& [name, known] : kVerdicts)
    if (known == verdict) return name;
  return "";
}

std::optional<Verdict> find_verdict(std::string_view word) {
  for (const auto& [name, verdict] : kVerdicts)
    if (name == word) return verdict;
  return std::nullopt;
}

std::string_view words(Cause cause) {
  switch (cause) {
    case Cause::compute: return "slower kernels";
    case Cause::recompute: return "recomputation";
    case Cause::tensor: return "exposed tp";
    case Cause::bubble: return "bubble";
    case Cause::exchange: return "exposed dp, pp, ep or cp";
    case Cause::update: return "the optimizer";
    case Cause::other: return "the host or the input";
  }
  return "";
}

std::vector<Trial> search(const Judge& judge, const Space& space, const SearchSpec& spec,
                          const SearchOptions& options) {
  return Searching(judge, space, spec, options).run();
}

bool are_twins(const Trial& a, const Trial& b) {
  return a.objectives == b.objectives && a.result->step == b.result->step &&
         a.result->memory == b.result->memory && a.result->breakdown == b.result->breakdown;
}

Ranking rank(const std::vector<Trial>& trials, const SearchSpec& spec) {
  Ranking ranking;
  std::vector<std::size_t> simulated;
  for (std::size_t at = 0; at < trials.size(); ++at)
    if (trials[at].verdict == Verdict::simulated) simulated.push_back(at);
  std::stable_sort(simulated.begin(), simulated.end(), [&](std::size_t a, std::size_t b) {
    return trials[a].objectives < trials[b].objectives;
  });
  // Ranked once.
  const auto twins = [&](std::size_t a, std::size_t b) { return are_twins(trials[a], trials[b]); };
  simulated.erase(std::unique(simulated.begin(), simulated.end(), twins), simulated.end());
  if (spec.objectives.size() == 1) {
    simulated.resize(std::min(simulated.size(), spec.best));
    if (simulated.size() == spec.best) ranking.last = trials[simulated.back()].objectives;
    ranking.best = std::move(simulated);
    return ranking;
  }
  // By the first objective: each has to have less of the second than all before it.
  for (const std::size_t at : simulated)
    if (ranking.best.empty() ||
        trials[at].objectives[1] < trials[ranking.best.back()].objectives[1])
      ranking.best.push_back(at);
  return ranking;
}

bool is_beaten(const std::vector<double>& least, const Ranking& ranking,
               const std::vector<Trial>& trials) {
  if (least.size() == 1) return !ranking.last.empty() && ranking.last.front() < least.front();
  return std::any_of(ranking.best.begin(), ranking.best.end(),
                     [&](std::size_t at) { return dominates(trials[at].objectives, least); });
}

void canonical(std::vector<Trial>& trials, const SearchSpec& spec) {
  const Ranking ranking = rank(trials, spec);
  for (Trial& trial : trials) {
    if (trial.least.empty() || !is_beaten(trial.least, ranking, trials)) continue;
    // What ranks is never beaten: its bound is no more than its result.
    trial.verdict = Verdict::slower;
    trial.why.clear();
    trial.result.reset();
    trial.objectives.clear();
  }
}

Cause cause_of(const Trial& trial, const Trial& best) {
  std::array<double, kCauses> more{};
  if (trial.result && best.result) {
    const auto own = causes_of(*trial.result), least = causes_of(*best.result);
    for (std::size_t cause = 0; cause < kCauses; ++cause)
      more[cause] = own[cause] - least[cause];
    // Kernels that run twice are told apart by the bounds.
    const auto repeated = static_cast<std::size_t>(Cause::recompute);
    const double again = trial.causes.empty() || best.causes.empty()
                             ? 0
                             : trial.causes[repeated] - best.causes[repeated];
    more[repeated] = again;
    more[static_cast<std::size_t>(Cause::compute)] -= again;
  } else if (!trial.causes.empty() && !best.causes.empty()) {
    for (std::size_t cause = 0; cause < kCauses; ++cause)
      more[cause] = trial.causes[cause] - best.causes[cause];
  }
  return static_cast<Cause>(std::max_element(more.begin(), more.end()) - more.begin());
}

}  // namespace trainyard::search
