// Step -> Monitor.
#include <algorithm>
#include <map>

#include "sim/base/check.h"
#include "sim/base/power.h"
#include "sim/simulate/monitor/gpu_traffic.h"
#include "sim/simulate/monitor/samples.h"
#include "sim/simulate/report/actor_spans.h"
#include "sim/simulate/report/summarize.h"

namespace trainyard::simulate {

using engine::KernelSpan;
using engine::Op;
using engine::Span;

namespace {

// What is added up during a sample.
struct Sums {
  LoadTimes loads{};       // of all its time
  Duration busy{};         // a kernel of any stream
  std::int64_t held = 0;   // multiprocessors x ps of communication beside no other kernel
  std::int64_t moved = 0;  // bytes of kernels over memory
};

// Sorted stretches, those that touch as one.
std::vector<Stretch> merged(std::vector<Stretch> list) {
  std::sort(list.begin(), list.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> merged;
  for (const Stretch& stretch : list) {
    if (stretch.begin >= stretch.end) continue;
    if (!merged.empty() && stretch.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, stretch.end);
    else
      merged.push_back(stretch);
  }
  return merged;
}

// each(part) for what lies of a stretch between those of a sorted list.
template <class Each>
void between(const std::vector<Stretch>& list, Stretch stretch, const Each& each) {
  auto next = std::upper_bound(list.begin(), list.end(), stretch.begin,
                               [](Duration at, const Stretch& s) { return at < s.end; });
  for (; stretch.begin < stretch.end; ++next) {
    const Duration until = next == list.end() ? stretch.end : std::min(stretch.end, next->begin);
    if (stretch.begin < until) each(Stretch{stretch.begin, until});
    if (next == list.end()) return;
    stretch.begin = std::max(stretch.begin, next->end);
  }
}

class RankWatch {
 public:
  RankWatch(const Job& job, const Step& step, const Samples& samples, std::size_t rank_class,
            const KernelLoads& kernels)
      : gpu_(gpu_of(job, step.lowered.classes[rank_class])),
        step_(step),
        samples_(samples),
        class_(rank_class),
        kernels_(kernels),
        sums_(samples.count()),
        shown_(samples.count()) {}

  MonitoredRank build(const MemoryCurve& memory, const std::vector<Crossing>& crossings) {
    add_kernels();
    add_waiting();
    add_crossings(crossings);
    add_memory(memory);
    const lower::RankClass& rank_class = step_.lowered.classes[class_];
    MonitoredRank rank;
    rank.rank = rank_class.representative;
    rank.count = rank_class.ranks;
    rank.stage = rank_class.stage;
    const engine::MemoryPeak& peak = step_.trace().peaks[rank_class.actor];
    rank.held = step_.devices[class_].on_device(peak.peak);
    rank.capacity = memory.capacity;
    for (std::size_t s = 0; s < sums_.size(); ++s)
      finish(s);
    if (gpu_.busy_power > Watts(0)) add_power(rank);
    rank.samples = std::move(shown_);
    return rank;
  }

 private:
  void add_kernels();
  void run(const Stretch& stretch, std::int64_t bytes);
  void run_single(const Stretch& op, std::span<const KernelSpan> kernels);
  void add_waiting();
  void add_crossings(const std::vector<Crossing>& crossings);
  void add_memory(const MemoryCurve& memory);
  void finish(std::size_t sample);
  void add_power(MonitoredRank& rank);
  void add_temperature(const topologies::Cooling& cooling, double joules);

  const topologies::GpuSpec& gpu_;
  const Step& step_;
  const Samples& samples_;
  std::size_t class_;
  const KernelLoads& kernels_;
  std::vector<Sums> sums_;
  std::vector<MonitorSample> shown_;
  std::vector<Stretch> running_;  // kernels of the compute stream
};

void RankWatch::run(const Stretch& stretch, std::int64_t bytes) {
  running_.push_back(stretch);
  samples_.spread(bytes, stretch,
                  [&](std::size_t s, std::int64_t moved) { sums_[s].moved += moved; });
}

// Between kernels the host had not yet issued the next.
void RankWatch::run_single(const Stretch& op, std::span<const KernelSpan> kernels) {
  const auto add = [&](const Stretch& stretch, Load load, std::int64_t sign) {
    samples_.cut(stretch, [&](std::size_t s, const Stretch& part) {
      sums_[s].loads[static_cast<std::size_t>(load)] += sign * (part.end - part.begin);
    });
  };
  add(op, Load::idle, 1);
  for (const KernelSpan& kernel : kernels) {
    const Stretch stretch{kernel.begin, kernel.end};
    run(stretch, kernels_.bytes(kernel.kernel));
    add(stretch, Load::idle, -1);
    add(stretch, kernels_.load(kernel.kernel), 1);
  }
}

// Of ops that the host may have held up single kernels were recorded, of others none.
void RankWatch::add_kernels() {
  const lower::RankClass& rank_class = step_.lowered.classes[class_];
  const engine::Program& program =
      step_.plan.cast.roles[static_cast<std::size_t>(rank_class.role)].program;
  constexpr auto kCompute = static_cast<std::uint8_t>(plan::StreamKind::compute);
  std::span<const KernelSpan> single = kernels_of(step_.trace(), rank_class.actor);
  for (const Span& span : spans_of(step_.trace(), rank_class.actor)) {
    const Op& op = program.op(span.call, span.op);
    if (op.stream != kCompute) continue;
    const std::pair place(span.call, span.op);
    while (!single.empty() && std::pair(single.front().call, single.front().op) < place)
      single = single.subspan(1);
    std::size_t told = 0;
    while (told < single.size() && std::pair(single[told].call, single[told].op) == place)
      ++told;
    const Stretch stretch{span.begin, span.end};
    if (told > 0 || program.segments[op.subject].kernels == 0) {
      run_single(stretch, single.first(told));
      continue;
    }
    run(stretch, kernels_.segment_bytes(op.subject));
    samples_.cut(stretch, [&](std::size_t s, const Stretch& part) {
      kernels_.add_segment(op.subject, stretch, part, sums_[s].loads);
    });
  }
  running_ = merged(std::move(running_));
}

void RankWatch::add_waiting() {
  for (const WaitingTime& waiting : step_.waiting[class_])
    samples_.cut({waiting.begin, waiting.end}, [&](std::size_t s, const Stretch& part) {
      sums_[s].loads[static_cast<std::size_t>(load_of_waiting(waiting.category))] +=
          part.end - part.begin;
    });
}

void RankWatch::add_crossings(const std::vector<Crossing>& crossings) {
  std::vector<Stretch> busy = running_;
  for (const Crossing& crossing : crossings) {
    busy.push_back(crossing.kernel);
    const auto spread = [&](std::int64_t bytes, auto field) {
      samples_.spread(bytes, crossing.time,
                      [&](std::size_t s, std::int64_t moved) { field(shown_[s]) += moved; });
    };
    spread(crossing.in.pcie, [](MonitorSample& s) -> std::int64_t& { return s.pcie.in; });
    spread(crossing.out.pcie, [](MonitorSample& s) -> std::int64_t& { return s.pcie.out; });
    spread(crossing.in.links, [](MonitorSample& s) -> std::int64_t& { return s.links.in; });
    spread(crossing.out.links, [](MonitorSample& s) -> std::int64_t& { return s.links.out; });
    const Stretch holds{std::max(crossing.kernel.begin, crossing.time.begin),
                        std::min(crossing.kernel.end, crossing.time.end)};
    between(running_, holds, [&](const Stretch& alone) {
      samples_.cut(alone, [&](std::size_t s, const Stretch& part) {
        sums_[s].held += crossing.units * (part.end - part.begin).count();
      });
    });
  }
  for (const Stretch& stretch : merged(std::move(busy)))
    samples_.cut(stretch, [&](std::size_t s, const Stretch& part) {
      sums_[s].busy += part.end - part.begin;
    });
}

void RankWatch::add_memory(const MemoryCurve& memory) {
  for (std::size_t i = 0; i < memory.samples.size(); ++i) {
    std::int64_t live = 0;
    for (const std::int64_t bytes : memory.samples[i].bytes)
      live += bytes;
    const Duration until =
        i + 1 < memory.samples.size() ? memory.samples[i + 1].at : Duration::max();
    samples_.cut({memory.samples[i].at, until}, [&](std::size_t s, const Stretch&) {
      shown_[s].memory = std::max(shown_[s].memory, Bytes(live));
    });
  }
}

void RankWatch::finish(std::size_t sample) {
  const Stretch time = samples_[sample];
  const Sums& sums = sums_[sample];
  MonitorSample& shown = shown_[sample];
  shown.begin = time.begin;
  shown.length = time.end - time.begin;
  Duration kernels{}, all{};
  for (std::size_t l = 0; l < kLoads; ++l) {
    all += sums.loads[l];
    const auto load = static_cast<Load>(l);
    if (load != Load::idle && load != Load::communication) kernels += sums.loads[l];
  }
  TRAINYARD_CHECK(all == shown.length, "{} ps of a sample of {} ps are accounted for", all.count(),
                  shown.length.count());
  const auto share = [&](double part) { return part / static_cast<double>(shown.length.count()); };
  shown.busy = share(static_cast<double>(sums.busy.count()));
  shown.kernels = share(static_cast<double>(kernels.count()));
  const double held = static_cast<double>(sums.held) / std::max(1, gpu_.multiprocessors);
  shown.multiprocessors = std::min(1.0, shown.kernels + share(held));
  const double most = gpu_.memory_bandwidth.count() * Seconds(shown.length).count();
  shown.memory_controller = static_cast<double>(sums.moved) / most;
}

void RankWatch::add_power(MonitoredRank& rank) {
  double joules = 0;
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    const double here = energy(gpu_, sums_[s].loads);
    shown_[s].watts = here / Seconds(shown_[s].length).count();
    joules += here;
  }
  rank.joules = joules;
  if (gpu_.cooling) add_temperature(*gpu_.cooling, joules);
}

// dT/dt = (settled(P) - T) / time constant, with the end of the step where it began. As differences
// from the temperature of the mean power, so that small steps lose no digits.
void RankWatch::add_temperature(const topologies::Cooling& cooling, double joules) {
  constexpr double kE = 2.718281828459045;
  double seconds = 0;
  for (const MonitorSample& sample : shown_)
    seconds += Seconds(sample.length).count();
  const double mean = cooling.settled(Watts(joules / seconds), gpu_.busy_power);
  const auto after = [&](double off, const MonitorSample& sample) {
    const double target = cooling.settled(Watts(*sample.watts), gpu_.busy_power) - mean;
    const double times = Seconds(sample.length).count() / Seconds(cooling.time_constant).count();
    return target + (off - target) * trainyard::power(kE, -std::min(times, 64.0));
  };
  double from_zero = 0, from_one = 1;
  for (const MonitorSample& sample : shown_) {
    from_zero = after(from_zero, sample);
    from_one = after(from_one, sample);
  }
  double off = from_zero / (1 - (from_one - from_zero));
  for (MonitorSample& sample : shown_) {
    off = after(off, sample);
    sample.celsius = mean + off;
  }
}

}  // namespace

Monitor monitor(const Job& job, const Step& step, const Timeline& timeline,
                std::optional<Duration> interval) {
  Monitor monitor;
  monitor.gpu = gpus_in_words(job.cluster);
  const Duration length = step.window.length();
  if (length <= Duration(0)) return monitor;
  monitor.interval =
      interval ? *interval : (length + Duration(kMonitorSamples - 1)) / kMonitorSamples;
  TRAINYARD_CHECK(monitor.interval > Duration(0), "samples of {} ps", monitor.interval.count());
  const Samples samples(step.window.begin, step.window.end, monitor.interval);
  const GpuTraffic traffic(job, step);
  std::map<std::pair<const plan::Role*, int>, KernelLoads> kernels;
  for (const MemoryCurve& memory : timeline.memory) {
    const std::uint32_t c = step.lowered.class_of_rank[static_cast<std::size_t>(memory.rank)];
    const lower::RankClass& own = step.lowered.classes[c];
    const plan::Role& role = step.plan.cast.roles[static_cast<std::size_t>(own.role)];
    if (!role.on_gpu()) continue;
    const std::pair key(&role, own.gpu_kind);
    const KernelLoads& loads =
        kernels.try_emplace(key, role, step.plan.cast, step.lowered, own.gpu_kind).first->second;
    RankWatch watch(job, step, samples, c, loads);
    monitor.ranks.push_back(watch.build(memory, traffic.of(c)));
  }
  return monitor;
}

}  // namespace trainyard::simulate
