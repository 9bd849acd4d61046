// Pipeline schedules: pure functions from a shape to the order in which one stage runs its passes.
//
//   p stages, m micro-batches, v chunks per stage; chunk c of stage s is virtual stage c p + s:
//   forward, a micro-batch visits stages 0 .. p-1 of chunk 0, then stage 0 of chunk 1, and so on;
//   backward it returns the same way.
//
// A schedule says only who does what in which order. Sends, memory and time are someone else's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

// `backward` is the whole of it; its halves (gradients of the input and of the weights) are for
// schedules that separate them. In zero-bubble papers "B" is the input half only.
enum class Pass : std::uint8_t { forward, backward, backward_input, backward_weight };

// One letter per pass, for drawings: F, B, I, W.
char letter(Pass pass);

// One pass of one micro-batch through one chunk of a stage.
struct Slot {
  Pass pass;
  int microbatch;
  int chunk;
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct PipelineShape {
  int stages = 1;        // p, pipeline-parallel size
  int microbatches = 1;  // m, per data-parallel replica and step
  int chunks = 1;        // v, model chunks per stage ("virtual stages"); 1 unless interleaved
  // Interleaved only: micro-batches that visit a chunk before the next chunk has its turn. 0: p.
  int group = 0;
};

struct ScheduleEntry {
  std::string_view name;  // as written in a scenario
  std::string_view summary;
  // The order of one stage. Requires: unsupported() is nullopt, 0 <= stage < stages.
  std::vector<Slot> (*build)(const PipelineShape&, int stage);
  // Why this shape is refused, in words; nullopt if it is fine.
  std::optional<std::string> (*unsupported)(const PipelineShape&);
};

// All schedules, in the order in which help lists them.
std::span<const ScheduleEntry> schedules();

// The schedule of that name, hyphen and underscore being equal; nullptr if there is none.
const ScheduleEntry* find_schedule(std::string_view name);

// The order of every stage. Requires: the shape is supported.
std::vector<std::vector<Slot>> build_stages(const ScheduleEntry& entry, const PipelineShape& shape);

// The pure functions behind the table; each file says its order, its time and its source.
std::vector<Slot> gpipe(const PipelineShape& shape, int stage);
std::vector<Slot> one_f_one_b(const PipelineShape& shape, int stage);
std::vector<Slot> interleaved_one_f_one_b(const PipelineShape& shape, int stage);
std::optional<std::string> interleaved_unsupported(const PipelineShape& shape);
std::vector<Slot> sequential(const PipelineShape& shape, int stage);

// What is wrong with an order of all stages, in words; nullopt if it is valid: each forward and
// each backward once per micro-batch, chunk and stage (a backward whole or as both of its halves),
// each after what it needs, and no cycle among the stages, else the cycle is named.
std::optional<std::string> check_schedule(const PipelineShape& shape,
                                          std::span<const std::vector<Slot>> stages);

// How many columns a pass takes in a drawing. Requires: each is positive.
struct PassTicks {
  int forward = 1, backward = 2, backward_input = 1, backward_weight = 1;
};

// A timeline in text without communication: one row per stage, one cell of equal width per tick.
// A pass begins with its letter, its micro-batch and, if stages have several chunks, the chunk as a
// lower-case letter; '-' while it goes on, '.' while the stage waits.
// Requires: check_schedule() is nullopt, chunks <= 26.
std::string draw(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                 const PassTicks& ticks = {});

}  // namespace trainyard
