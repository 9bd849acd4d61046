#include "sim/simulate/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/recipe/rank_map.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"
#include "topologies/topology.h"

namespace trainyard::simulate {

using plan::kMemoryKinds;
using plan::MemoryKind;

namespace {

using Text = std::back_insert_iterator<std::string>;

constexpr int kRanksShown = 32;

void ranks(const Job& job, const Step& step, Text out) {
  const recipe::RankMap map(job.plan.degrees, job.plan.rank_order);
  fmt::format_to(out, "{:>6}  {:>6}  {:>4}  {:>4}  {:>4}  {:>4}  {:>4}\n", "rank", "server", "GPU",
                 "tp", "cp", "dp", "pp");
  const int shown = std::min(map.world_size(), kRanksShown);
  for (int r = 0; r < shown; ++r) {
    const recipe::RankCoordinates at = map.coordinates(Rank(static_cast<std::uint32_t>(r)));
    const lower::Device& device = step.placement[static_cast<std::size_t>(r)];
    fmt::format_to(out, "{:>6}  {:>6}  {:>4}  {:>4}  {:>4}  {:>4}  {:>4}\n", r, device.server,
                   device.gpu, at.tensor, at.context, at.data, at.pipeline);
  }
  if (shown < map.world_size())
    fmt::format_to(out, "... and {} more, in the order {}\n", map.world_size() - shown,
                   to_text(job.plan.rank_order));
}

// Of a stage that has layers in any order.
void placed_layers(const Step& step, Text out) {
  fmt::format_to(out, "{:>5}  {:>6}  {}\n", "stage", "places", "layers");
  for (std::size_t stage = 0; stage < step.plan.layers.size(); ++stage) {
    const plan::ChainRange range = step.plan.layers[stage];
    fmt::format_to(out, "{:>5}  {:>6}", stage, range.last - range.first);
    for (int place = range.first; place < range.last; ++place)
      fmt::format_to(out, "{} {}", place == range.first ? " " : ",", step.plan.name_of(place));
    fmt::format_to(out, "\n");
  }
}

void layers(const Job& job, const Step& step, Text out) {
  if (job.plan.pipeline.branches) return placed_layers(step, out);
  fmt::format_to(out, "{:>5}  {:>5}  {:>6}  {}\n", "stage", "chunk", "places", "from .. to");
  const schedule::PipelineShape& shape = step.plan.shape;
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (std::uint8_t direction = 0; direction < directions(shape); ++direction) {
      for (int chunk = 0; chunk < shape.chunks; ++chunk) {
        const schedule::Seat seat{stage, chunk, direction};
        const plan::ChainRange range =
            step.plan.layers[static_cast<std::size_t>(virtual_stage(shape, seat))];
        fmt::format_to(out, "{:>5}  {:>5}  {:>6}  {} .. {}\n", stage, part(shape, seat),
                       range.last - range.first, step.plan.name_of(range.first),
                       step.plan.name_of(range.last - 1));
      }
    }
  }
}

// How many of a stage's parameters train, where not all do.
void frozen_shares(const Step& step, Text out) {
  for (const plan::Role& role : step.plan.cast.roles) {
    // Those that a leader updates are its own.
    const bool is_led =
        &role != &step.plan.cast.roles[static_cast<std::size_t>(role.stage.value_or(0))];
    if (role.frozen == 0 || is_led) continue;
    const std::int64_t trained = role.parameters - role.frozen;
    fmt::format_to(out, "stage {}: {} of {} parameters train ({:.3f} %)\n", role.stage.value_or(0),
                   trained, role.parameters,
                   100 * static_cast<double>(trained) / static_cast<double>(role.parameters));
  }
}

void memory(const Job& job, const Step& step, Text out) {
  constexpr std::array<std::pair<MemoryKind, std::string_view>, kMemoryKinds> kColumns = {
      {{MemoryKind::parameters, "weights"},
       {MemoryKind::gradients, "gradients"},
       {MemoryKind::optimizer_state, "optimizer"},
       {MemoryKind::activations, "activations"},
       {MemoryKind::logits, "logits"},
       {MemoryKind::communication_buffers, "buffers"},
       {MemoryKind::workspace, "workspace"},
       {MemoryKind::fragmentation, "fragments"},
       {MemoryKind::nccl_buffers, "NCCL"},
       {MemoryKind::context, "context"}}};
  fmt::format_to(out, "{:>5}  {:>5}  {:>12}", "rank", "stage", "parameters");
  for (const auto& [category, title] : kColumns)
    fmt::format_to(out, "  {:>11}", title);
  fmt::format_to(out, "  {:>9}  {:>9}  {:>9}\n", "allocated", "reserved", "device");
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const lower::RankClass& rank_class = step.lowered.classes[c];
    const DeviceMemory& device = step.devices[c];
    const engine::MemoryPeak& peak = step.trace().peaks[rank_class.actor];
    const auto held = device.by_category(peak.by_category);
    fmt::format_to(out, "{:>5}  {:>5}  {:>12}", rank_class.representative, rank_class.stage,
                   step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)].parameters);
    for (const auto& [category, title] : kColumns)
      fmt::format_to(out, "  {:>11}", to_text(Bytes(held[static_cast<std::size_t>(category)])));
    fmt::format_to(out, "  {:>9}  {:>9}  {:>9}\n", to_text(device.allocated(peak.peak)),
                   to_text(device.reserved(peak.peak)), to_text(device.on_device(peak.peak)));
  }
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const lower::RankClass& rank_class = step.lowered.classes[c];
    const Bytes held = step.trace().peaks[rank_class.actor].peak;
    if (step.devices[c].is_tight(held))
      fmt::format_to(out, "rank {} is tight: {} wanted\n", rank_class.representative,
                     to_text(step.devices[c].wanted(held)));
  }
  frozen_shares(step, out);
  for (const topologies::GpuKind& kind : gpu_kinds(job.cluster))
    fmt::format_to(out, "capacity of a {}: {}\n", kind.gpu->name, to_text(kind.gpu->memory));
}

void kernels(const Job& job, const Step& step, Text out) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (step.lowered.kernels[kind].empty()) continue;
    if (kinds.size() > 1) fmt::format_to(out, "on a {}\n", kinds[kind].gpu->name);
    fmt::format_to(out, "{:>10}  {:<12}  {}\n", "time", "basis", "kernel");
    for (std::size_t k = 0; k < step.plan.cast.kernels.size(); ++k) {
      const cost::Estimate& estimate = step.lowered.kernels[kind][k];
      fmt::format_to(out, "{:>10}  {:<12}  {}\n", to_text(to_duration(estimate.time)),
                     name(estimate.basis), to_text(step.plan.cast.kernels[k]));
    }
  }
}

// Bandwidth and latency in whole numbers, so that another program loses nothing.
void links(const Job& job, const Step& /*step*/, Text out) {
  const topologies::Topology topology(job.cluster);
  fmt::format_to(out, "{:>14}  {:>12}  {}\n", "bytes_per_s", "latency_ps", "link");
  for (const LinkId id : topology.links().ids()) {
    const topologies::Link& link = topology.links()[id];
    fmt::format_to(out, "{:>14.0f}  {:>12}  {}\n", link.bandwidth.count(), link.latency.count(),
                   topology.name(id));
  }
}

void transfers(const Job& /*job*/, const Step& step, Text out) {
  fmt::format_to(out, "{:>10}  {:>10}  {:<12}  {:>7}  {}\n", "time", "bytes", "basis", "servers",
                 "what");
  for (const std::vector<lower::TransferEstimate>& table : step.lowered.transfers) {
    for (const lower::TransferEstimate& estimate : table) {
      Seconds time = estimate.terms.latency;
      if (estimate.terms.wire_bytes > Bytes(0))
        time += estimate.terms.wire_bytes / estimate.terms.bandwidth;
      const std::string what =
          estimate.host      ? std::string(name(*estimate.host))
          : estimate.meeting ? fmt::format("wait of {} ranks for a cycle", estimate.shape.ranks)
          : estimate.point_to_point
              ? "message"
              : fmt::format("{} of {} ranks", name(estimate.spec.kind), estimate.shape.ranks);
      fmt::format_to(out, "{:>10}  {:>10}  {:<12}  {:>7}  {}\n", to_text(to_duration(time)),
                     to_text(estimate.spec.bytes), name(estimate.terms.basis),
                     estimate.shape.servers, what);
    }
  }
}

// The ranks of each class in ranges: "0,3-5".
std::vector<std::string> members(const lower::Lowered& lowered) {
  constexpr std::size_t kRangesShown = 32;
  struct Range {
    std::size_t first, last;
  };
  std::vector<std::vector<Range>> ranges(lowered.classes.size());
  for (std::size_t rank = 0; rank < lowered.class_of_rank.size(); ++rank) {
    std::vector<Range>& own = ranges[lowered.class_of_rank[rank]];
    if (!own.empty() && own.back().last + 1 == rank)
      own.back().last = rank;
    else
      own.push_back({rank, rank});
  }
  std::vector<std::string> texts;
  for (const std::vector<Range>& own : ranges) {
    std::string& text = texts.emplace_back();
    for (std::size_t i = 0; i < std::min(own.size(), kRangesShown); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ",", own[i].first);
      if (own[i].last > own[i].first) text += fmt::format("-{}", own[i].last);
    }
    if (own.size() > kRangesShown) text += ",...";
  }
  return texts;
}

void classes(const Job& /*job*/, const Step& step, Text out) {
  const std::vector<std::string> which = members(step.lowered);
  fmt::format_to(out, "{:>5}  {:>6}  {:>6}  {:>5}  {:>8}  {:>8}  {:>8}  {}\n", "class", "rank",
                 "ranks", "stage", "slowdown", "calls", "ops", "which");
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const lower::RankClass& rank_class = step.lowered.classes[c];
    const engine::Program& program =
        step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)].program;
    std::size_t ops = 0;
    for (const engine::Call& call : program.calls)
      ops += program.blocks[call.block].ops.size();
    fmt::format_to(out, "{:>5}  {:>6}  {:>6}  {:>5}  {:>8}  {:>8}  {:>8}  {}\n", c,
                   rank_class.representative, rank_class.ranks, rank_class.stage,
                   shortest(rank_class.slowdown), program.calls.size(), ops, which[c]);
  }
}

struct Writer {
  std::string_view name;
  void (*write)(const Job&, const Step&, Text);
};
constexpr std::array<Writer, kExplainStages.size()> kWriters = {{
    {"ranks", ranks},
    {"layers", layers},
    {"memory", memory},
    {"kernels", kernels},
    {"transfers", transfers},
    {"classes", classes},
    {"links", links},
}};

}  // namespace

std::string explain_stage(const scenario::Scenario& scenario, std::string_view stage) {
  const Job job = job_of(scenario);
  const auto step = step_of(scenario, job,
                            {.unfold = false, .run = stage == "memory", .detail = Detail::outline});
  std::string text;
  const Text out(text);
  const auto writer = std::find_if(kWriters.begin(), kWriters.end(), [&](const Writer& candidate) {
    return candidate.name == stage;
  });
  TRAINYARD_CHECK(writer != kWriters.end(), "no stage {}", stage);
  writer->write(job, *step, out);
  return text;
}

}  // namespace trainyard::simulate
