// Pipeline schedules: pure functions from a shape to the order in which every stage runs its
// passes.
//
//   p stages, m micro-batches, v chunks per stage; the network is a line of p v virtual stages, and
//   the placement (sim/schedule/chunk_placement.h) says which stage holds which of them.
//
// A schedule says only who does what in which order. Sends, memory and time are someone else's.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::schedule {

// `backward` is the whole of it; its halves (gradients of the input and of the weights) are for
// schedules that separate them. In zero-bubble papers "B" is the input half only.
enum class Pass : std::uint8_t { forward, backward, backward_input, backward_weight };

// One letter per pass, for drawings: F, B, I, W.
char letter(Pass pass);

// Whether the stage before needs what the pass computes.
constexpr bool gives_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}
// Whether activations are given back after it.
constexpr bool ends_backward(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_weight;
}

// One pass of one micro-batch through one chunk of a stage.
struct Slot {
  Pass pass = Pass::forward;
  int microbatch = 0;
  int chunk = 0;
  std::uint8_t direction = 0;  // which copy of the network; 1 only under bidirectional placement
  // A forward that overlaps with the whole backward after it: they start and end together.
  bool paired = false;
  friend bool operator==(const Slot&, const Slot&) = default;
};

// The order of every stage.
using StageOrders = std::vector<std::vector<Slot>>;

// Where the network's virtual stages are.
enum class Placement : std::uint8_t {
  looped,         // chunk after chunk down the stages: chunk c of stage s is virtual stage c p + s
  v_shaped,       // two chunks, down and back up: s and 2p - 1 - s
  bidirectional,  // two copies of the network, one down (direction 0) and one up the stages
};
std::string_view name(Placement placement);  // "looped", "v", "bidirectional"

struct PipelineShape {
  int stages = 1;        // p, pipeline-parallel size
  int microbatches = 1;  // m, per data-parallel replica and step, over all copies of the network
  int chunks = 1;        // v, model chunks per stage and copy ("virtual stages")
  // Interleaved only: micro-batches that visit a chunk before the next chunk has its turn. 0: p.
  int group = 0;
  Placement placement = Placement::looped;
  bool paired = false;  // schedules with `pairs` only: forwards overlap with the next backwards
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// What the passes of one micro-batch take on one part of a stage.
struct PassTimes {
  Duration forward{}, backward_input{}, backward_weight{};
  Duration communication{};  // latency of a message that leaves the part; occupies no stage
  Duration overlapped{};     // a forward paired with this part's backward; 0: the sum of both
  Bytes activations{1};      // kept from forward to the end of backward
  Duration backward() const { return backward_input + backward_weight; }
};

// A tick each, for drawings and for what depends on no times.
inline constexpr PassTimes kDrawingTimes{Duration(1), Duration(1), Duration(1), {}, {}, Bytes(1)};

inline constexpr Bytes kNoMemoryLimit{std::numeric_limits<std::int64_t>::max()};

// What a schedule is made from. `times` is by stage and part (parts(shape) per stage); only
// schedules with `times_from` look at it and at the limits of activations, by stage; empty: none.
struct ScheduleInputs {
  std::span<const PassTimes> times{};
  std::span<const Bytes> memory_limits{};

  Bytes memory_limit(int stage) const {
    return memory_limits.empty() ? kNoMemoryLimit : memory_limits[static_cast<std::size_t>(stage)];
  }
};

// When the optimizer runs.
enum class Updates : std::uint8_t {
  after_all,         // once per step, when every micro-batch is done: the pipeline is flushed
  every_microbatch,  // after each backward; each micro-batch finds the weights of its forward again
  without_flush,     // once per step, while the next step's micro-batches are under way
};

// The activations of the fullest stage, the most first. Sources: those of the rows.
enum class Holding : std::uint8_t {
  unranked,
  every_microbatch,
  above_1f1b,
  as_1f1b,
  half_of_1f1b,
  third_of_1f1b,
};

struct ScheduleEntry {
  std::string_view name;  // as written in a scenario
  std::string_view summary;
  std::string_view source;
  std::string_view needs = {};  // of the shape, in words; empty: nothing
  Placement placement = Placement::looped;
  int chunks = 1;  // where the user does not say
  // The order of every stage. Requires: unsupported() is nullopt.
  StageOrders (*build)(const PipelineShape&, const ScheduleInputs&) = nullptr;
  // Why this shape is refused, in words; nullopt if it is fine.
  std::optional<std::string> (*unsupported)(const PipelineShape&) = nullptr;
  // Made from the job's times, which are estimated by a run of this other schedule; empty: from
  // none.
  std::string_view times_from = {};
  Updates updates = Updates::after_all;
  Holding holding = Holding::unranked;
  bool pairs = false;             // takes PipelineShape::paired
  bool grouped = false;           // micro-batches visit a chunk in groups (PipelineShape::group)
  bool one_at_a_time = false;     // a micro-batch leaves the pipeline before the next enters
  bool fills_and_drains = false;  // equal passes idle (p - 1) / (m v) of the ideal time
};

// How many versions of its weights a stage keeps: one if the pipeline is flushed; for updates after
// every micro-batch one for each that can be between its forward and its backward; else two.
int weight_versions(const ScheduleEntry& entry, const PipelineShape& shape, int stage);

// All schedules, in the order in which help lists them.
std::span<const ScheduleEntry> schedules();

// The schedule of that name, hyphen and underscore being equal; nullptr if there is none.
const ScheduleEntry* find_schedule(std::string_view name);

// The shape with the entry's placement. Chunks 0: as many as the schedule has by itself.
PipelineShape shape_of(const ScheduleEntry& entry, int stages, int microbatches, int chunks = 0);

// The order of every stage. Requires: the shape is supported and has the entry's placement.
StageOrders build_stages(const ScheduleEntry& entry, const PipelineShape& shape,
                         const ScheduleInputs& inputs = {});

// The pure functions behind the table; each file says its order, its time and its source.
std::vector<Slot> gpipe(const PipelineShape& shape, int stage);
std::vector<Slot> one_f_one_b(const PipelineShape& shape, int stage);
std::vector<Slot> interleaved_one_f_one_b(const PipelineShape& shape, int stage);
std::optional<std::string> interleaved_unsupported(const PipelineShape& shape);
std::vector<Slot> sequential(const PipelineShape& shape, int stage);
std::vector<Slot> breadth_first(const PipelineShape& shape, int stage);
std::vector<Slot> zero_bubble_h1(const PipelineShape& shape, int stage);
std::vector<Slot> zero_bubble_h2(const PipelineShape& shape, int stage);
std::vector<Slot> chimera(const PipelineShape& shape, int stage);
std::vector<Slot> dual_pipe(const PipelineShape& shape, int stage);
std::vector<Slot> dual_pipe_v(const PipelineShape& shape, int stage);
StageOrders zero_bubble_v(const PipelineShape& shape, const ScheduleInputs& inputs);
StageOrders v_half(const PipelineShape& shape, const ScheduleInputs& inputs);
StageOrders v_min(const PipelineShape& shape, const ScheduleInputs& inputs);
// Where no times are given it takes those of a drawing. Requires: the limit is at least one
// micro-batch's activations.
StageOrders zero_bubble_auto(const PipelineShape& shape, const ScheduleInputs& inputs);
// What their shapes must be beyond the number of chunks.
std::optional<std::string> chimera_unsupported(const PipelineShape& shape);
std::optional<std::string> dual_pipe_unsupported(const PipelineShape& shape);
std::optional<std::string> dual_pipe_v_unsupported(const PipelineShape& shape);
std::optional<std::string> two_chunks(const PipelineShape& shape);

// What is wrong with an order of all stages, in words; nullopt if it is valid: each micro-batch
// goes through one copy of the network, each forward and each backward once on every virtual stage
// of it (a backward whole or as both of its halves), each after what it needs, and no cycle among
// the stages, else the cycle is named.
std::optional<std::string> check_schedule(const PipelineShape& shape,
                                          std::span<const std::vector<Slot>> stages);

// A timeline in text: one row per stage, one cell of equal width per tick (a picosecond of `times`,
// which hold for every part). A pass begins with its letter, its micro-batch and, if stages have
// several parts, the part as a lower-case letter; a pair is joined by '+'; '-' while a pass goes
// on,
// '.' while the stage waits.
// Requires: check_schedule() is nullopt, parts(shape) <= 26, each pass takes at least a tick.
std::string draw(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                 const PassTimes& times = kDrawingTimes);

}  // namespace trainyard::schedule
