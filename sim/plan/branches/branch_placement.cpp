#include "sim/plan/branches/branch_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/base/check.h"
#include "sim/plan/branches/placed_network.h"
#include "sim/plan/split/stage_split.h"

namespace trainyard::plan {

using models::NetworkWork;
using models::SharedTensor;
using recipe::BranchPlacement;
using schedule::PipelineShape;

namespace {

bool matches(std::string_view name, std::string_view pattern) {
  std::size_t n = 0, p = 0, star = std::string_view::npos, behind = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++behind;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// Some layers that do exist.
std::string some_names(const std::vector<std::string>& layers) {
  constexpr std::size_t kShown = 8;
  std::string text = "layers are";
  for (std::size_t i = 0; i < std::min(kShown, layers.size()); ++i)
    text += fmt::format("{} \"{}\"", i == 0 ? "" : ",", layers[i]);
  return layers.size() > kShown ? text + ", ..." : text;
}

using Stages = std::vector<int>;  // by place

// What a placement comes to, the most important first; less is better.
using Merit = std::array<double, 3>;
constexpr double kNone = std::numeric_limits<double>::infinity();

class PlacementSearch {
 public:
  PlacementSearch(const NetworkWork& work, const PipelineShape& shape,
                  const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                  std::span<const StageGpus> gpus)
      : work_(work),
        stages_(shape.stages),
        places_(static_cast<int>(work.chain.size())),
        memory_first_(plan.pipeline.branches->placed == BranchPlacement::by_memory),
        loads_(work, shape, recipe, plan),
        held_(most_held(shape, plan)),
        arrives_(work.tensors.size(), std::vector<double>(static_cast<std::size_t>(stages_))),
        read_(work.chain.size()),
        made_(work.chain.size()) {
    const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
    const bool fills = schedule != nullptr && !schedule->one_at_a_time;
    rounds_ = fills ? std::min(shape.microbatches, kMostRounds) : 1;
    for (int stage = 0; stage < stages_; ++stage)
      gpus_.push_back(gpus[gpus.size() == 1 ? 0 : static_cast<std::size_t>(stage)]);
    for (std::size_t t = 0; t < work.tensors.size(); ++t) {
      const SharedTensor& tensor = work.tensors[t];
      keepers_.push_back(keepers_of(work, tensor));
      counted_.push_back(is_counted(tensor));
      if (tensor.maker < 0) continue;
      made_[static_cast<std::size_t>(tensor.maker)].push_back(t);
      for (const int reader : tensor.readers)
        read_[static_cast<std::size_t>(reader)].push_back(t);
    }
    cost_ = stages_ * static_cast<int>(work.tensors.size()) + places_;
    for (const SharedTensor& tensor : work.tensors)
      cost_ += static_cast<std::int64_t>(tensor.readers.size()) * stages_;
    cost_ *= rounds_;
  }

  // The best that is found from these and two more.
  Stages best(std::vector<Stages> starts) {
    starts.push_back(in_equal_parts());
    if (Stages soonest = each_soonest(); !soonest.empty()) starts.push_back(std::move(soonest));
    std::sort(starts.begin(), starts.end(), [&](const Stages& one, const Stages& other) {
      return merit(one, {kNone, kNone, kNone}) < merit(other, {kNone, kNone, kNone});
    });
    Stages best;
    Merit least = {kNone, kNone, kNone};
    for (Stages& start : starts) {
      const Merit own = improve(start);
      if (!best.empty() && !(own < least)) continue;
      best = std::move(start);
      least = own;
    }
    return best;
  }

 private:
  static constexpr int kMostRounds = 4;
  // What all trials together may look at, layers and readers: some tenths of a second.
  static constexpr std::int64_t kMostWork = 40'000'000;

  double work_at(int place, int stage) const {
    return loads_.work(place, gpus_[static_cast<std::size_t>(stage)]);
  }

  Stages in_equal_parts() const {
    double all = 0, so_far = 0;
    for (int place = 0; place < places_; ++place)
      all += work_at(place, 0);
    Stages stages;
    int stage = 0, in_stage = 0;
    for (int place = 0; place < places_; ++place) {
      const bool must = places_ - place <= stages_ - 1 - stage;  // each later one has a layer
      const bool full = so_far >= all * (stage + 1) / stages_;
      if (in_stage > 0 && stage + 1 < stages_ && (must || full)) {
        ++stage;
        in_stage = 0;
      }
      stages.push_back(stage);
      ++in_stage;
      so_far += work_at(place, 0);
    }
    return stages;
  }

  // Empty: a stage would have no layer.
  Stages each_soonest() {
    Clock clock = new_clock();
    Stages stages(work_.chain.size(), -1);
    for (int place = 0; place < places_; ++place) {
      int best = 0;
      double soonest = kNone;
      for (int stage = 0; stage < stages_; ++stage) {
        const double end = ready(place, stage, stages, clock) + work_at(place, stage);
        if (end >= soonest) continue;
        soonest = end;
        best = stage;
      }
      stages[static_cast<std::size_t>(place)] = best;
      clock.free[static_cast<std::size_t>(best)] = soonest;
      hand_on(place, stages, soonest, true, clock);
    }
    for (int stage = 0; stage < stages_; ++stage)
      if (std::count(stages.begin(), stages.end(), stage) == 0) return {};
    return stages;
  }

  bool is_spent() const { return looked_at_ >= kMostWork; }

  Merit improve(Stages& stages) {
    Merit now = merit(stages, {kNone, kNone, kNone});
    while (!is_spent() && (move_runs(stages, now) || move_pairs(stages, now))) {
    }
    return now;
  }

  // Takes `moved_` if it is better.
  bool take(Stages& stages, Merit& now) {
    if (moved_ == stages) return false;
    const Merit then = merit(moved_, now);
    if (!(then < now)) return false;
    stages = moved_;
    now = then;
    return true;
  }

  // Neighbours, to one stage.
  bool move_runs(Stages& stages, Merit& now) {
    bool better = false;
    for (int length = 1; length < places_; length *= 2)
      for (int first = 0; first + length <= places_; ++first)
        for (int stage = 0; stage < stages_; ++stage) {
          if (is_spent()) return better;
          moved_ = stages;
          std::fill_n(moved_.begin() + first, length, stage);
          better = take(stages, now) || better;
        }
    return better;
  }

  // Any two layers, to any stages; the first pair that helps.
  bool move_pairs(Stages& stages, Merit& now) {
    for (std::size_t one = 0; one < stages.size(); ++one)
      for (std::size_t other = one + 1; other < stages.size(); ++other)
        for (int to = 0; to < stages_ * stages_; ++to) {
          if (is_spent()) return false;
          moved_ = stages;
          moved_[one] = to / stages_;
          moved_[other] = to % stages_;
          if (take(stages, now)) return true;
        }
    return false;
  }

  // Of one that is no better than `least`, perhaps only what says so.
  Merit merit(const Stages& stages, const Merit& least) {
    for (int stage = 0; stage < stages_; ++stage)
      if (std::find(stages.begin(), stages.end(), stage) == stages.end())
        return {kNone, kNone, kNone};
    looked_at_ += cost_;
    if (!memory_first_) {
      const double time = time_of(stages);
      return {time, time <= least[0] ? fullest_of(stages)[0] : kNone, 0};
    }
    const std::array<double, 2> memory = fullest_of(stages);
    const bool as_good = memory[0] < least[0] || (memory[0] == least[0] && memory[1] <= least[1]);
    return {memory[0], memory[1], as_good ? time_of(stages) : kNone};
  }

  // Whether the place that reads a tensor first counts it among what it keeps.
  bool is_counted(const SharedTensor& tensor) const {
    const int first = work_.chain[static_cast<std::size_t>(tensor.readers.front())];
    const bool again = runs_again(work_.kinds[static_cast<std::size_t>(first)]);
    return !tensor.weight && (again || !tensor.keepers.empty());
  }

  // The fullest stage, as a share of its memory, and the sum of the squares of all. As if what runs
  // again did so layer by layer; without buffers of communication.
  std::array<double, 2> fullest_of(const Stages& stages) const {
    std::vector<Load> loads(gpus_.size());
    const auto stage_of = [&](int place) {
      return static_cast<std::size_t>(stages[static_cast<std::size_t>(place)]);
    };
    for (int place = 0; place < places_; ++place)
      loads_.add(loads[stage_of(place)], place, gpus_[stage_of(place)]);
    std::vector<std::size_t> holders;
    for (std::size_t t = 0; t < keepers_.size(); ++t) {
      const Bytes bytes = work_.tensors[t].bytes;
      const auto keep = [&](std::size_t stage, Bytes more) {
        loads[stage].kept = loads[stage].kept + more;
      };
      if (counted_[t]) keep(stage_of(work_.tensors[t].readers.front()), Bytes(0) - bytes);
      holders.clear();
      for (const int keeper : keepers_[t]) {
        if (std::find(holders.begin(), holders.end(), stage_of(keeper)) != holders.end()) continue;
        holders.push_back(stage_of(keeper));
        keep(holders.back(), bytes);
      }
    }
    std::array<double, 2> result = {0, 0};
    for (std::size_t stage = 0; stage < loads.size(); ++stage) {
      const double share = static_cast<double>(loads_.memory(loads[stage], held_[stage]).count()) /
                           static_cast<double>(gpus_[stage].memory.count());
      result[0] = std::max(result[0], share);
      result[1] += share * share;
    }
    return result;
  }

  // When stages are free, and their messages down and up have gone.
  struct Clock {
    std::vector<double> free;
    std::vector<std::array<double, 2>> sent;
  };
  Clock new_clock() const {
    return {std::vector<double>(gpus_.size(), 0),
            std::vector<std::array<double, 2>>(gpus_.size(), {0, 0})};
  }

  double ready(int place, int stage, const Stages& stages, const Clock& clock) const {
    double at = clock.free[static_cast<std::size_t>(stage)];
    for (const std::size_t tensor : read_[static_cast<std::size_t>(place)]) {
      const int maker = work_.tensors[tensor].maker;
      if (stages[static_cast<std::size_t>(maker)] != stage)
        at = std::max(at, arrives_[tensor][static_cast<std::size_t>(stage)]);
    }
    return at;
  }

  // `to_all`: readers have no stage yet, and a message to one does not wait for those to others.
  void hand_on(int place, const Stages& stages, double made, bool to_all, Clock& clock) {
    const auto from = static_cast<std::size_t>(stages[static_cast<std::size_t>(place)]);
    const auto reads = [&](const SharedTensor& tensor, std::size_t stage) {
      return to_all || std::any_of(tensor.readers.begin(), tensor.readers.end(), [&](int reader) {
               return static_cast<std::size_t>(stages[static_cast<std::size_t>(reader)]) == stage;
             });
    };
    for (const std::size_t t : made_[static_cast<std::size_t>(place)]) {
      const SharedTensor& tensor = work_.tensors[t];
      const double takes = (tensor.gradient ? 2 : 1) *
                           (gpus_[from].message_latency +
                            static_cast<double>(tensor.bytes.count()) * gpus_[from].message_byte);
      for (std::size_t stage = 0; stage < gpus_.size(); ++stage) {
        if (stage == from || !reads(tensor, stage)) continue;
        double& sent = clock.sent[from][stage > from ? 0 : 1];
        arrives_[t][stage] = std::max(made, to_all ? made : sent) + takes;
        sent = arrives_[t][stage];
      }
    }
  }

  double time_of(const Stages& stages) {
    Clock clock = new_clock();
    for (int round = 0; round < rounds_; ++round)
      for (int place = 0; place < places_; ++place) {
        const int stage = stages[static_cast<std::size_t>(place)];
        double& free = clock.free[static_cast<std::size_t>(stage)];
        free = ready(place, stage, stages, clock) + work_at(place, stage);
        hand_on(place, stages, free, false, clock);
      }
    return *std::max_element(clock.free.begin(), clock.free.end());
  }

  const NetworkWork& work_;
  int stages_, places_;
  bool memory_first_;
  StageLoads loads_;
  std::vector<int> held_;
  std::vector<StageGpus> gpus_;  // by stage
  int rounds_ = 1;
  std::vector<std::vector<double>> arrives_;           // by tensor and stage
  std::vector<std::vector<std::size_t>> read_, made_;  // tensors, by place
  std::vector<bool> counted_;                          // by tensor, is_counted()
  Stages moved_;                                       // that is tried
  std::int64_t cost_ = 0;                              // of looking at one
  std::vector<std::vector<int>> keepers_;              // by tensor
  std::int64_t looked_at_ = 0;
};

}  // namespace

std::vector<int> given_stages(const std::vector<std::string>& layers,
                              const recipe::Branches& branches,
                              std::vector<PlacementProblem>& problems) {
  Stages stage_of(layers.size(), -1);
  for (std::size_t stage = 0; stage < branches.stages.size(); ++stage) {
    const std::vector<std::string>& names = branches.stages[stage].layers;
    const int own = static_cast<int>(stage);
    if (names.empty()) problems.push_back({own, -1, "a stage has at least one layer", ""});
    for (std::size_t entry = 0; entry < names.size(); ++entry) {
      const auto problem = [&](std::string message, std::string hint) {
        problems.push_back({own, static_cast<int>(entry), std::move(message), std::move(hint)});
      };
      bool found = false;
      std::optional<std::size_t> twice;
      for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        if (!matches(layers[layer], names[entry])) continue;
        found = true;
        if (stage_of[layer] >= 0 && !twice) twice = layer;
        stage_of[layer] = own;
      }
      if (!found)
        problem(fmt::format("no layer is called \"{}\"", names[entry]), some_names(layers));
      else if (twice)
        problem(fmt::format("layer \"{}\" is listed before", layers[*twice]),
                "each layer is on one stage");
    }
  }
  const auto missing = std::find(stage_of.begin(), stage_of.end(), -1);
  if (problems.empty() && missing != stage_of.end())
    problems.push_back({-1, -1,
                        fmt::format("no stage has the layer \"{}\"",
                                    layers[static_cast<std::size_t>(missing - stage_of.begin())]),
                        "list it, or a name with * for several"});
  return stage_of;
}

std::vector<int> place_branches(const NetworkWork& work, const PipelineShape& shape,
                                const recipe::TrainingRecipe& recipe,
                                const recipe::ParallelPlan& plan, std::span<const StageGpus> gpus) {
  const recipe::Branches& branches = *plan.pipeline.branches;
  if (branches.placed == BranchPlacement::given) {
    std::vector<PlacementProblem> problems;
    Stages stages = given_stages(place_names(work), branches, problems);
    TRAINYARD_CHECK(problems.empty(), "{}", problems.front().message);
    return stages;
  }
  TRAINYARD_CHECK(!gpus.empty() && shape.stages <= static_cast<int>(work.chain.size()),
                  "{} layers for {} stages", work.chain.size(), shape.stages);
  // Cuts of the network's order are placements, too.
  std::vector<Stages> starts;
  if (std::count(work.divisible.begin(), work.divisible.end(), true) >= shape.stages)
    for (const recipe::LayerSplit split :
         {recipe::LayerSplit::by_time, recipe::LayerSplit::by_memory}) {
      recipe::ParallelPlan cut = plan;
      cut.pipeline.layer_split = split;
      Stages& stages = starts.emplace_back();
      const std::vector<ChainRange> ranges = split_layers(work, shape, recipe, cut, gpus);
      for (std::size_t stage = 0; stage < ranges.size(); ++stage)
        stages.insert(stages.end(),
                      static_cast<std::size_t>(ranges[stage].last - ranges[stage].first),
                      static_cast<int>(stage));
    }
  return PlacementSearch(work, shape, recipe, plan, gpus).best(std::move(starts));
}

}  // namespace trainyard::plan
