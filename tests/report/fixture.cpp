#include "fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainyard::fixture {
namespace {

constexpr Duration kMicrosecond(1'000'000);
constexpr int kLayers = 3;  // per stage
constexpr Duration kHost = 30 * kMicrosecond;

struct Slot {
  bool forward = true;
  int microbatch = 0;
};

// Sources of the orders: Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2 (1F1B).
std::vector<Slot> order(const Shape& shape, int stage) {
  std::vector<Slot> slots;
  const int warm_up = shape.schedule == "gpipe"
                          ? shape.microbatches
                          : std::min(shape.stages - 1 - stage, shape.microbatches);
  for (int i = 0; i < warm_up; ++i)
    slots.push_back({true, i});
  for (int i = warm_up; i < shape.microbatches; ++i) {
    slots.push_back({true, i});
    slots.push_back({false, i - warm_up});
  }
  for (int i = shape.microbatches - warm_up; i < shape.microbatches; ++i)
    slots.push_back({false, i});
  return slots;
}

class Builder {
 public:
  explicit Builder(const Shape& shape)
      : shape_(shape), stages_(static_cast<std::size_t>(shape.stages)) {}

  ReportVariant build() {
    run_schedule();
    for (int s = 0; s < shape_.stages; ++s)
      finish_stage(s);
    ReportVariant variant;
    variant.label = shape_.label;
    add_timeline(variant.timeline);
    add_report(variant);
    add_memory(variant);
    return variant;
  }

 private:
  struct Stage {
    std::vector<Slot> slots;
    std::size_t next = 0;
    Duration free = kHost;
    Lane compute, tensor, data;
    std::array<Lane, 2> send, receive;                 // backward, forward
    std::map<std::pair<bool, int>, Duration> arrived;  // input of a pass
    std::vector<std::pair<Duration, int>>
        activations;  // +1 at a forward's begin, -1 at a backward's end
  };

  Stage& stage(int s) { return stages_[static_cast<std::size_t>(s)]; }
  int rank(int s) const { return s * shape_.tensor * shape_.data; }

  std::uint32_t intern(const std::string& name) {
    const auto [entry, fresh] = ids_.emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (fresh) names_.push_back(name);
    return entry->second;
  }

  Slice slice(Duration begin, Duration length, const std::string& name, SliceKind kind,
              int microbatch) {
    Slice s;
    s.begin = begin;
    s.active = begin;
    s.end = begin + length;
    s.name = intern(name);
    s.kind = kind;
    s.microbatch = microbatch;
    return s;
  }

  // One kernel and, with tensor parallelism, the all-reduce that the next kernel waits for.
  void kernel(Stage& st, const std::string& name, SliceKind kind, int microbatch,
              int microseconds) {
    const Duration length = microseconds * kMicrosecond / shape_.tensor;
    st.compute.slices.push_back(slice(st.free, length, name, kind, microbatch));
    st.free += length;
    if (shape_.tensor == 1 || kind == SliceKind::recompute) return;
    Slice s =
        slice(st.free, 24 * kMicrosecond, "all-reduce " + name, SliceKind::tensor, microbatch);
    s.active = s.begin + kMicrosecond;
    s.bytes = 16 << 20;
    st.tensor.slices.push_back(s);
    st.free = s.end;
  }

  void run(int s, const Slot& slot) {
    Stage& st = stage(s);
    const auto pass = [&](SliceKind kind, bool upwards, int factor) {
      for (int i = 0; i < kLayers; ++i) {
        const int layer = s * kLayers + (upwards ? i : kLayers - 1 - i);
        const std::string suffix = kind == SliceKind::backward ? " backward" : "";
        const auto half = [&](bool first) {
          return fmt::format("layer {} {}{}", layer, first == upwards ? "attention" : "mlp",
                             suffix);
        };
        kernel(st, half(true), kind, slot.microbatch, 90 * factor);
        kernel(st, half(false), kind, slot.microbatch, 110 * factor);
      }
    };
    if (slot.forward) {
      st.activations.emplace_back(st.free, 1);
      pass(SliceKind::forward, true, 1);
    } else {
      if (shape_.recompute) pass(SliceKind::recompute, true, 1);
      pass(SliceKind::backward, false, 2);
      st.activations.emplace_back(st.free, -1);
    }
    const int to = slot.forward ? s + 1 : s - 1;
    if (to >= 0 && to < shape_.stages) transfer(s, to, slot);
  }

  void transfer(int from, int to, const Slot& slot) {
    Lane& send = stage(from).send[slot.forward ? 1 : 0];
    Lane& receive = stage(to).receive[slot.forward ? 1 : 0];
    Duration begin = stage(from).free;
    if (!send.slices.empty()) begin = std::max(begin, send.slices.back().end);
    if (!receive.slices.empty()) begin = std::max(begin, receive.slices.back().end);
    const std::string what = slot.forward ? "activations" : "gradients";
    Slice s = slice(begin, 40 * kMicrosecond, "send " + what, SliceKind::pipeline, slot.microbatch);
    s.bytes = 8 << 20;
    s.peer = rank(to);
    s.flow = ++flows_;
    send.slices.push_back(s);
    s.name = intern("receive " + what);
    s.peer = rank(from);
    const Duration free = receive.slices.empty() ? Duration{} : receive.slices.back().end;
    s.begin = std::max(free, s.active - 60 * kMicrosecond);
    receive.slices.push_back(s);
    stage(to).arrived[{slot.forward, slot.microbatch}] = s.end;
  }

  // Runs every slot whose input has arrived until all are done.
  void run_schedule() {
    for (int s = 0; s < shape_.stages; ++s)
      stage(s).slots = order(shape_, s);
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < shape_.stages; ++s) {
        Stage& st = stage(s);
        if (st.next == st.slots.size()) continue;
        const Slot slot = st.slots[st.next];
        const bool first = slot.forward ? s == 0 : s == shape_.stages - 1;
        const auto input = st.arrived.find({slot.forward, slot.microbatch});
        if (!first && input == st.arrived.end()) continue;
        if (!first) st.free = std::max(st.free, input->second);
        run(s, slot);
        ++st.next;
        moved = true;
      }
    }
  }

  void finish_stage(int s) {
    Stage& st = stage(s);
    if (shape_.data > 1) {
      for (int bucket = 0; bucket < 3; ++bucket) {
        const Duration begin =
            bucket == 0 ? st.free - 200 * kMicrosecond : st.data.slices.back().end;
        Slice sl = slice(begin, 180 * kMicrosecond, fmt::format("all-reduce bucket {}", bucket),
                         SliceKind::data, -1);
        sl.active = begin + 8 * kMicrosecond;
        sl.bytes = 50 << 20;
        st.data.slices.push_back(sl);
      }
      st.free = st.data.slices.back().end;
    }
    st.compute.slices.push_back(
        slice(st.free, 350 * kMicrosecond, "Adam", SliceKind::optimizer, -1));
    st.free += 350 * kMicrosecond;
    end_ = std::max(end_, st.free);
  }

  void add_timeline(Timeline& timeline) {
    timeline.end = end_;
    timeline.names = names_;
    timeline.ranks_total = shape_.stages * shape_.tensor * shape_.data;
    for (int s = 0; s < shape_.stages; ++s) {
      Stage& st = stage(s);
      timeline.ranks_shown.push_back(rank(s));
      const auto add = [&](Lane& lane, std::string_view stream) {
        lane.rank = rank(s);
        lane.stage = s;
        lane.stream = stream;
        if (!lane.slices.empty()) timeline.lanes.push_back(lane);
      };
      add(st.compute, "compute");
      add(st.tensor, "tensor parallel");
      add(st.data, "data parallel");
      add(st.send[1], "send forward");
      add(st.send[0], "send backward");
      add(st.receive[1], "receive forward");
      add(st.receive[0], "receive backward");
    }
  }

  static bool moves_at(const Lane& lane, Duration t) {
    return std::any_of(lane.slices.begin(), lane.slices.end(),
                       [t](const Slice& s) { return s.active <= t && t < s.end; });
  }

  // What the compute stream waits for in [from, to), instant by instant, first that applies.
  static void wait(const Stage& st, Duration from, Duration to, Breakdown& out) {
    const std::array<std::pair<const Lane*, TimeCategory>, 4> causes = {
        {{&st.tensor, TimeCategory::exposed_tp},
         {&st.data, TimeCategory::exposed_dp},
         {&st.receive[0], TimeCategory::exposed_pp},
         {&st.receive[1], TimeCategory::exposed_pp}}};
    std::vector<Duration> edges = {from, to};
    for (const auto& [lane, category] : causes)
      for (const Slice& s : lane->slices)
        for (const Duration t : {s.active, s.end})
          if (t > from && t < to) edges.push_back(t);
    std::sort(edges.begin(), edges.end());
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      TimeCategory category = TimeCategory::bubble;
      for (std::size_t c = causes.size(); c-- > 0;)
        if (moves_at(*causes[c].first, edges[i])) category = causes[c].second;
      out[static_cast<std::size_t>(category)] += edges[i + 1] - edges[i];
    }
  }

  // Every picosecond of [0, end) once: kernels, then what a gap of the compute lane waits for.
  Breakdown breakdown(const Stage& st) const {
    Breakdown out{};
    const auto at = [&out](TimeCategory c) -> Duration& {
      return out[static_cast<std::size_t>(c)];
    };
    at(TimeCategory::host) = kHost;
    Duration previous = kHost;
    for (const Slice& s : st.compute.slices) {
      wait(st, previous, s.begin, out);
      at(s.kind == SliceKind::optimizer ? TimeCategory::optimizer : TimeCategory::compute) +=
          s.end - s.begin;
      previous = s.end;
    }
    wait(st, previous, end_, out);
    return out;
  }

  void add_report(ReportVariant& variant) {
    StepReport& r = variant.report;
    r.name = "gpt-1.3b-8gpu";
    r.label = shape_.label;
    r.description = "A small language model on one server";
    r.world_size = variant.timeline.ranks_total;
    r.tensor = shape_.tensor, r.data = shape_.data, r.pipeline = r.stages = shape_.stages;
    r.schedule = shape_.schedule;
    r.microbatches = shape_.microbatches;
    r.gpu = "a100-sxm4-40gb", r.server = "dgx-a100";
    r.parameters = 1'313'000'000, r.global_batch = 64, r.sequence_length = 1024;
    r.simulated_step = end_;
    r.step_time = end_;
    const double step = Seconds(end_).count();
    r.samples_per_s = 64 / step;
    r.tokens_per_s = r.samples_per_s * 1024;
    r.tokens_per_s_per_gpu = r.tokens_per_s / r.world_size;
    r.model_flops = 6e12;
    r.model_tflops_per_gpu = r.model_flops / step / r.world_size / 1e12;
    r.mfu = r.model_tflops_per_gpu / 312;
    r.hfu = r.mfu * (shape_.recompute ? 4.0 / 3 : 1);
    r.full_square_flops = 1.05 * r.model_flops;
    r.full_square_tflops_per_gpu = 1.05 * r.model_tflops_per_gpu;
    r.full_square_mfu = 1.05 * r.mfu;
    r.estimate_class = {"a transformer", true, true};
    r.interval = Interval{to_duration(Seconds(0.9 * step)), to_duration(Seconds(1.2 * step)), 17,
                          describe(r.estimate_class), true};
    TrainingTotal& total = r.training.emplace();
    total.samples = 64e6, total.tokens = 1024 * total.samples, total.steps = 1e6;
    total.days = total.steps * step / 86400, total.gpu_hours = 24 * total.days * r.world_size;
    total.gpu_hour = 1.5, total.dollars = 1.5 * total.gpu_hours;
    total.kilowatt_hours = 0.3 * total.gpu_hours;
    Duration busy{}, slowest{};
    for (int s = 0; s < shape_.stages; ++s) {
      const Stage& st = stages_[static_cast<std::size_t>(s)];
      r.ranks.push_back({rank(s), shape_.tensor * shape_.data, s, breakdown(st), Bytes(0)});
      for (const Slice& sl : st.compute.slices)
        busy += sl.end - sl.begin;
      if (st.free > slowest)
        slowest = st.free, r.slowest_rank = rank(s), r.breakdown = r.ranks.back().breakdown;
    }
    r.bubble_fraction = 1 - Seconds(busy).count() / (step * shape_.stages);
    r.basis = {{Basis::measured, 0.58}, {Basis::interpolated, 0.3}, {Basis::analytic, 0.12}};
    r.sources = {
        {"GEMM fp16", "kernel benchmark", "A100-SXM4-40GB", "MAPE 6.1 %", Basis::measured},
        {"all-reduce, 2 ranks", "nccl-tests", "DGX A100", "MAPE 4.0 %", Basis::interpolated},
        {"point to point", "datasheet", "", "", Basis::analytic}};
    r.calibration = Calibration{"trainyard fit 0.1.0",
                                "8x A100-SXM4-40GB",
                                "2024-05-01",
                                "550.54",
                                "12.4",
                                1234,
                                {{"gemm fp16", "all", 700, 300, 4, 0.061, 0.042, 0.31},
                                 {"gemm fp16", "flops >= 1e9", 300, 120, 0, 0.045, 0.03, 0.2},
                                 {"memory-bound", "all", 90, 0, 1, 0, 0, 0}},
                                {"convolution: no samples"}};
    r.profile = "a100-sxm4-40gb", r.fidelity = "closed-form";
    r.events = 12345, r.ops = 6789, r.classes = shape_.stages;
    variant.settings = {{"/parallelism/pp", std::to_string(shape_.stages)},
                        {"/parallelism/tp", std::to_string(shape_.tensor)},
                        {"/parallelism/dp", std::to_string(shape_.data)},
                        {"/parallelism/pipeline/schedule", "\"" + shape_.schedule + "\""},
                        {"/training/recompute", shape_.recompute ? "\"full\"" : "\"none\""},
                        {"/training/global_batch", "64"}};
  }

  void add_memory(ReportVariant& variant) {
    constexpr std::int64_t kMiB = 1 << 20;
    StepReport& r = variant.report;
    r.memory.capacity = Bytes(40LL << 30);
    const std::int64_t parameters = 640 * kMiB / shape_.tensor;
    for (int s = 0; s < shape_.stages; ++s) {
      MemoryCurve curve;
      curve.rank = rank(s);
      curve.capacity = r.memory.capacity;
      constexpr auto kActivations = static_cast<std::size_t>(MemoryKind::activations);
      std::array<std::int64_t, kMemoryKinds> live = {
          parameters, parameters, 6 * parameters, 0,          64 * kMiB,
          192 * kMiB, 96 * kMiB,  32 * kMiB,      288 * kMiB, 512 * kMiB};
      curve.samples.push_back({Duration{}, live});
      for (const auto& [at, sign] : stage(s).activations) {
        live[kActivations] += sign * shape_.activation_bytes;
        if (at > curve.samples.back().at)
          curve.samples.push_back({at, live});
        else
          curve.samples.back().bytes = live;
      }
      for (const MemorySample& sample : curve.samples) {
        std::int64_t total = 0;
        for (const std::int64_t bytes : sample.bytes)
          total += bytes;
        if (Bytes(total) <= r.memory.peak) continue;
        r.memory.peak = Bytes(total);
        r.memory.peak_at = sample.at;
        r.memory.peak_rank = curve.rank;
        r.memory.reserved = r.memory.peak - Bytes(800 * kMiB);
        r.memory.allocated = r.memory.reserved - Bytes(32 * kMiB);
        for (std::size_t i = 0; i < kMemoryKinds; ++i)
          r.memory.by_category[i] = Bytes(sample.bytes[i]);
      }
      variant.timeline.memory.push_back(std::move(curve));
    }
    r.memory.owners = {
        {MemoryKind::activations, "layers 0-2, all micro-batches in flight",
         r.memory.by_category[3]},
        {MemoryKind::optimizer_state, "Adam moments and master weights", r.memory.by_category[2]},
        {MemoryKind::context, "CUDA context", Bytes(512 * kMiB)},
        {MemoryKind::parameters, "layers 0-2", r.memory.by_category[0]},
        {MemoryKind::gradients, "layers 0-2", r.memory.by_category[1]}};
    r.memory.wanted = r.memory.peak;
    r.fits = r.memory.fits = r.memory.peak <= r.memory.capacity;
    if (!r.fits) r.step_time.reset();
  }

  Shape shape_;
  std::vector<Stage> stages_;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t> ids_;
  std::uint64_t flows_ = 0;
  Duration end_{};
};

}  // namespace

ReportVariant make(const Shape& shape) {
  return Builder(shape).build();
}

std::vector<ReportVariant> four_variants() {
  constexpr std::int64_t kGiB = 1 << 30;
  return {make({"GPipe", "gpipe", 4, 8, 1, 2, false, 3 * kGiB}),
          make({"1F1B", "1f1b", 4, 8, 1, 2, false, 3 * kGiB}),
          make({"1F1B, tp 2, recompute", "1f1b", 4, 8, 2, 1, true, kGiB / 2}),
          make({"GPipe, micro-batch of 2", "gpipe", 4, 8, 1, 2, false, 6 * kGiB})};
}

std::vector<StepReport> reports() {
  std::vector<StepReport> list;
  for (ReportVariant& variant : four_variants())
    list.push_back(std::move(variant.report));
  return list;
}

const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts = {"</script><script>document.title='owned'</script>",
                                                 "<!--<script>",
                                                 "<img src=x onerror=document.title='owned'>",
                                                 "\"quotes\" & 'more' {{script}}",
                                                 "\x1b[31mred\x1b]0;title\x07",
                                                 "\u202eright to left",
                                                 "line\u2028separator\u2029",
                                                 "not UTF-8: \xff\xfe"};
  return texts;
}

std::vector<ReportVariant> hostile_variants() {
  std::vector<ReportVariant> variants = {make({"a", "1f1b", 2, 4, 1, 2, false, 1 << 30})};
  const std::vector<std::string>& texts = hostile_texts();
  variants[0].label = texts[0] + texts[1];
  StepReport& r = variants[0].report;
  r.name = texts[1], r.label = texts[2], r.description = texts[0];
  r.gpu = texts[3], r.server = texts[4], r.profile = texts[5], r.fidelity = texts[6];
  r.warnings = texts;
  r.sources[0].what = texts[2];
  r.basis[1].basis = Basis::extrapolated;
  r.extrapolated = {{texts[2], texts[0], 0.2}, {"softmax", texts[1], 0.1}};
  r.calibration->machine = texts[2];
  r.calibration->errors[0].what = texts[0];
  r.calibration->rejected = texts;
  r.memory.owners[0].name = texts[7];
  variants[0].settings.push_back({texts[2], texts[0]});
  for (std::size_t i = 0; i < variants[0].timeline.names.size(); ++i)
    variants[0].timeline.names[i] += texts[i % texts.size()];
  variants[0].timeline.lanes.back().stream = texts[2];
  return variants;
}

}  // namespace trainyard::fixture
