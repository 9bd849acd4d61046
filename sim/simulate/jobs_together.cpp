#include "sim/simulate/jobs_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/out_of_range.h"
#include "sim/base/text.h"
#include "sim/lower/device_placement.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

namespace {

constexpr int kLeastSteps = 8, kLeastOfOthers = 4;

// When each of the other jobs ends each of its steps.
class StepEnds final : public engine::Observer {
 public:
  // `role`: of one of the job's own classes; all ranks of it end a step together.
  void add(std::size_t job, engine::ActorId actor, const plan::Role& role) {
    jobs_.resize(std::max(jobs_.size(), job + 1));
    Ends& ends = jobs_[job];
    ends.left.resize(role.round_calls.size(), 0);
    std::size_t call = 0;
    for (std::size_t round = 0; round < role.round_calls.size(); ++round)
      for (; call < role.round_calls[round]; ++call)
        ends.left[round] += role.program.blocks[role.program.calls[call].block].ops.size();
    watched_.emplace(actor, std::pair(job, &role));
    actors_.push_back(actor);
  }
  const std::vector<engine::ActorId>& actors() const { return actors_; }

  void kernel_ended(const engine::KernelSpan& /*kernel*/) override {}
  void op_ended(const engine::Span& op) override {
    const auto watched = watched_.find(op.actor);
    if (watched == watched_.end()) return;
    const auto& [job, role] = watched->second;
    const std::vector<std::size_t>& calls = role->round_calls;
    const auto round = static_cast<std::size_t>(
        std::upper_bound(calls.begin(), calls.end(), op.call) - calls.begin());
    Ends& ends = jobs_[job];
    if (round < ends.left.size() && --ends.left[round] == 0) ends.at.push_back(op.end);
  }

  // The ends of a job's steps so far.
  const std::vector<Duration>& of(std::size_t job) const { return jobs_[job].at; }

 private:
  struct Ends {
    std::vector<std::size_t> left;  // by step: ops that go on
    std::vector<Duration> at;
  };
  std::vector<Ends> jobs_;
  std::map<engine::ActorId, std::pair<std::size_t, const plan::Role*>> watched_;
  std::vector<engine::ActorId> actors_;
};

// A job by itself, repeating its step.
struct Alone {
  Job job;
  JobShare share;
  Duration end{};  // of all its steps
  int steps = 0;
  bool finishes = true;
};

// `taken`: by server, GPUs of the jobs before it.
Alone alone(const std::string& name, const Job& job, const std::vector<int>& taken, bool unfold) {
  Alone found{.job = job, .share = {.name = name, .ranks = job.plan.degrees.world_size()}};
  found.job.others.clear();
  found.job.gpus_taken = taken;
  found.job.recipe.steps = kLeastSteps + 2;
  std::unique_ptr<Step> step;
  try {
    step = simulate_step(found.job, {.unfold = unfold, .detail = Detail::outline});
  } catch (lower::UnsupportedCollective& refused) {
    if (!name.empty())
      refused.message = fmt::format("in the other job \"{}\": {}", name, refused.message);
    throw;
  }
  const StepReport report = outline(found.job, *step);
  if (report.deadlock && !name.empty())
    throw OutOfRange(fmt::format("the other job \"{}\" never finishes", name));
  found.share.fits = report.fits;
  found.share.is_tight = report.memory.is_tight;
  found.finishes = !report.deadlock;
  found.share.alone = step->window.step();
  found.end = step->trace().end;
  found.steps = step->plan.rounds.count;
  return found;
}

// How many steps this job does, so that the longest other does enough of its own.
int steps_of_first(std::span<const Alone> jobs) {
  double most = 0;
  for (std::size_t at = 1; at < jobs.size(); ++at) {
    const Alone& other = jobs[at];
    const double first = Seconds(jobs.front().share.alone).count();
    const double ratio = Seconds(other.share.alone).count() / std::max(first, 1e-12);
    if (ratio > kMostStepRatio || ratio * kMostStepRatio < 1)
      throw UnlikeSteps(
          at - 1,
          fmt::format("a step of {} takes {}, one of this job {}: jobs whose steps differ by "
                      "more than {} times cannot be simulated together",
                      other.share.name, to_text(other.share.alone),
                      to_text(jobs.front().share.alone), kMostStepRatio));
    most = std::max(most, ratio);
  }
  return 2 + std::max(kLeastSteps, static_cast<int>(std::ceil(kLeastOfOthers * most)));
}

// Kernels of the other job are issued as its own script does.
void keep_launch(const Costs& own, const Costs& first, const Job& job, std::size_t player,
                 const lower::DevicePlacement& placement, plan::Cast& cast) {
  for (std::size_t at = 0; at < cast.players(); ++at) {
    plan::Role& role = cast.roles[cast.role_of[at]];
    const lower::Device& device = placement[player + at];
    if (!role.on_gpu() || role.launch) continue;
    const auto kind = static_cast<std::size_t>(gpu_kind_of(job.cluster, device.server, device.gpu));
    const auto host = [&](const Costs& costs) {
      return costs.laws[kind].launch + costs.laws[kind].call;
    };
    if (host(own) != host(first)) role.launch = host(own);
  }
}

class Together {
 public:
  Together(const Job& job, const StepOptions& options) : options_(options) {
    std::vector<int> taken(static_cast<std::size_t>(job.cluster.servers), 0);
    const auto add = [&](const std::string& name, const Job& one) {
      jobs_.push_back(alone(name, one, taken, options.unfold));
      for (int server = 0; server < one.cluster.servers; ++server)
        taken[static_cast<std::size_t>(server)] += one.cluster.used_on(server);
    };
    add("", job);
    if (!jobs_.front().finishes) return;
    for (const OtherJob& other : job.others)
      add(other.name, other.job);
    Job& first = jobs_.front().job;
    if (jobs_.front().steps == first.recipe.steps) {
      first.recipe.steps = steps_of_first(jobs_);
      jobs_.front().end = first.recipe.steps * jobs_.front().share.alone;
    }
    for (std::size_t at = 1; at < jobs_.size(); ++at)
      jobs_[at].job.recipe.steps = steps_beside(jobs_[at], 1.5);
  }

  std::unique_ptr<Step> simulate() {
    if (!jobs_.front().finishes) return simulate_step(jobs_.front().job, options_);
    while (true) {
      auto step = std::make_unique<Step>();
      StepEnds ends;
      const StepMaker maker(jobs_.front().job, options_);
      maker.plan(*step);
      place(maker, *step, ends);
      if (options_.run) {
        run_programs(jobs_.front().job, options_, {&ends, ends.actors()}, *step);
        if (std::holds_alternative<engine::Deadlock>(step->outcome)) return step;
        if (!all_lasted(*step, ends)) continue;
      }
      share(*step, ends);
      return step;
    }
  }

 private:
  // Enough to go on while the first's take `stretch` times as long as alone.
  int steps_beside(const Alone& other, double stretch) const {
    const double steps =
        stretch * Seconds(jobs_.front().end).count() / Seconds(other.share.alone).count();
    return 2 + static_cast<int>(std::ceil(steps));
  }

  void place(const StepMaker& maker, Step& step, StepEnds& ends) {
    const Job& first = jobs_.front().job;
    std::vector<int> taken(static_cast<std::size_t>(first.cluster.servers), 0);
    const auto take = [&](const plan::Cast& cast, const topologies::ClusterSpec& cluster) {
      const lower::DevicePlacement own = lower::in_order(cast, cluster, taken);
      for (int server = 0; server < cluster.servers; ++server)
        taken[static_cast<std::size_t>(server)] += cluster.used_on(server);
      return own;
    };
    lower::DevicePlacement placement = take(step.plan.cast, first.cluster);
    step.together = std::make_unique<plan::Cast>(step.plan.cast);
    std::vector<std::size_t> ends_of_jobs;  // by other job: its last player's successor
    std::vector<recipe::Straggler> slower;
    for (std::size_t at = 1; at < jobs_.size(); ++at) {
      const StepMaker other(jobs_[at].job, options_);
      Step own;
      other.plan(own);
      TRAINYARD_CHECK(own.plan.rounds.count == jobs_[at].job.recipe.steps,
                      "{} does not repeat its step", jobs_[at].share.name);
      const lower::DevicePlacement devices = take(own.plan.cast, jobs_[at].job.cluster);
      const std::size_t player = placement.size();
      placement.insert(placement.end(), devices.begin(), devices.end());
      const double jitter = slowest_gpu(jobs_[at].job).slowdown / slowest_gpu(first).slowdown;
      for (std::size_t own_player = 0; jitter != 1 && own_player < devices.size(); ++own_player)
        if (!devices[own_player].is_host())
          slower.push_back({static_cast<int>(player + own_player), jitter});
      keep_launch(other.costs(), maker.costs(), first, player, placement, own.plan.cast);
      *step.together = join(std::move(*step.together), own.plan.cast, jobs_[at].share.name + ": ");
      ends_of_jobs.push_back(placement.size());
    }
    for (const lower::RankClass& rank_class :
         maker.place_with_others(*step.together, placement, std::move(slower), step)) {
      const plan::Role& role = step.together->roles[static_cast<std::size_t>(rank_class.role)];
      const auto player = static_cast<std::size_t>(rank_class.representative);
      const auto job = static_cast<std::size_t>(
          std::upper_bound(ends_of_jobs.begin(), ends_of_jobs.end(), player) -
          ends_of_jobs.begin());
      if (role.on_gpu()) ends.add(job, rank_class.actor, role);
    }
  }

  // Whether the others went on until the first was done; if not, they do more steps next time.
  bool all_lasted(const Step& step, const StepEnds& ends) {
    bool all = true;
    for (std::size_t at = 1; at < jobs_.size(); ++at) {
      if (ends.of(at - 1).back() >= step.window.end) continue;
      jobs_[at].job.recipe.steps *= 2;
      all = false;
    }
    return all;
  }

  void share(Step& step, const StepEnds& ends) {
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
      JobShare& own = step.jobs.emplace_back(jobs_[at].share);
      if (!options_.run) continue;
      if (at == 0) {
        own.together = step.window.step();
        own.steps = static_cast<int>(std::lround(step.window.steps));
        continue;
      }
      const std::vector<Duration>& times = ends.of(at - 1);
      const auto ended = std::upper_bound(times.begin(), times.end(), step.window.end);
      own.steps = std::max(0, static_cast<int>(ended - times.begin()) - 1);
      if (own.steps > 0) own.together = (*(ended - 1) - times.front()) / own.steps;
    }
  }

  const StepOptions& options_;
  std::vector<Alone> jobs_;  // the first is the one that is simulated
};

}  // namespace

std::unique_ptr<Step> simulate_together(const Job& job, const StepOptions& options) {
  return Together(job, options).simulate();
}

}  // namespace trainyard::simulate
