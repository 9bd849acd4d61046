// The decisions that several parts of a plan depend on: who divides what, and how much work there
// is.
#include <algorithm>

#include "sim/schedule/custom_schedule.h"
#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using schedule::PipelineShape;
using schedule::Placement;
using schedule::ScheduleEntry;

namespace {

constexpr int kMostRanks = 48, kMostRanksOfBig = 256;

void choose_kind(Sketch& s) {
  s.kind = s.draw.pick({Kind::decoder, Kind::decoder, Kind::decoder, Kind::decoder, Kind::decoder,
                        Kind::decoder, Kind::decoder, Kind::encoder, Kind::encoder_decoder,
                        Kind::vision, Kind::recommender, Kind::layers});
  s.experts = s.kind == Kind::decoder && s.draw.chance(25);
  s.latent = s.kind == Kind::decoder && s.draw.chance(10);
  s.hybrid = s.kind == Kind::decoder && s.draw.chance(8);
  if (!s.draw.chance(6)) return;
  switch (s.kind) {
    case Kind::decoder: s.preset = s.experts ? "qwen3-30b-a3b" : "llama3-8b"; break;
    case Kind::encoder: s.preset = "bert-base"; break;
    case Kind::encoder_decoder: s.preset = "t5-small"; break;
    case Kind::vision: s.preset = "vit-b-16"; break;
    case Kind::recommender: break;
    case Kind::layers: s.preset = s.draw.word({"resnet18", "mobilenet-v3-small", "swin-t"}); break;
  }
  s.latent = s.latent && s.preset.empty();
  s.hybrid = s.hybrid && s.preset.empty();
}

void choose_degrees(Sketch& s) {
  Draw& draw = s.draw;
  const bool big = draw.chance(1);
  s.data = draw.pick({1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 16});
  if (big) s.data = draw.pick({64, 96});
  if (s.kind != Kind::recommender) s.pipeline = draw.pick({1, 1, 1, 2, 2, 3, 4, 4, 5, 8});
  if (s.stack()) s.tensor = draw.pick({1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 3, 6});
  if (s.kind == Kind::decoder || s.kind == Kind::encoder)
    s.context = draw.pick({1, 1, 1, 1, 1, 2, 2, 4, 3});
  const int most = big ? kMostRanksOfBig : kMostRanks;
  while (s.world() > most) {
    int* const largest = std::max({&s.tensor, &s.context, &s.pipeline, &s.data},
                                  [](const int* a, const int* b) { return *a < *b; });
    *largest /= 2;
  }
}

// Whether the pair of degrees divides the ranks of a stage.
void choose_experts(Sketch& s) {
  if (!s.experts) return;
  const int replica = s.tensor * s.context * s.data;
  s.expert_tensor = s.draw.chance(50) ? s.tensor : s.draw.pick({1, 1, 2});
  s.expert_ranks = s.draw.pick({1, 2, 2, 4, 4, 8, 3});
  if (replica % s.expert_tensor != 0) s.expert_tensor = 1;
  while (replica % (s.expert_ranks * s.expert_tensor) != 0)
    --s.expert_ranks;
}

PipelineShape shape_of(const Sketch& s) {
  PipelineShape shape = schedule::shape_of(*s.schedule, s.pipeline, s.microbatches, s.chunks);
  return shape;
}

void choose_schedule(Sketch& s) {
  Draw& draw = s.draw;
  const auto choose_batches = [&] {
    s.microbatches = draw.pick({1, 2, 3, 4, 6, 8, s.pipeline, 2 * s.pipeline, 3 * s.pipeline});
  };
  choose_batches();
  s.schedule = schedule::find_schedule("1f1b");
  if (s.pipeline > 1 && draw.chance(4)) {
    s.schedule = nullptr;
    return;
  }
  // Those that branches allow.
  if (s.pipeline > 1 && s.kind == Kind::layers && draw.chance(60)) {
    s.schedule = schedule::find_schedule(draw.word({"gpipe", "sequential"}));
    return;
  }
  for (int attempt = 0; attempt < 20 && s.pipeline > 1; ++attempt) {
    s.schedule = &draw.element(schedule::schedules());
    s.chunks = s.schedule->chunks;
    if (s.schedule->placement == Placement::looped && s.schedule->name != "1f1b" && draw.chance(70))
      s.chunks = draw.between(1, 3);
    choose_batches();
    if (!s.schedule->unsupported(shape_of(s))) return;
  }
  s.schedule = schedule::find_schedule("1f1b");
  s.chunks = 1;
}

// A length that all who divide the sequence can divide.
void choose_sequence(Sketch& s) {
  Draw& draw = s.draw;
  s.sequence_parallel = s.tensor > 1 && (s.experts || draw.chance(40)) && s.kind != Kind::vision;
  s.chunked = s.sequence_parallel && draw.chance(25) && s.tokens();
  s.ulysses = s.context > 1 && draw.chance(30);
  s.micro_batch = draw.pick({1, 1, 1, 2, 4});
  int unit = 2 * s.context * s.tensor;
  if (s.chunked) unit *= 4 * s.tensor;
  s.sequence_length = unit * draw.between(1, std::max(1, 512 / unit));
}

}  // namespace

void sketch_degrees(Sketch& s) {
  choose_kind(s);
  choose_degrees(s);
  choose_experts(s);
  choose_schedule(s);
  s.overlap_passes = s.schedule != nullptr && s.schedule->pairs && s.draw.chance(10) &&
                     (s.pipeline == 1 || s.chunks > 1);
  choose_sequence(s);
  s.layers = s.pipeline * s.chunks * s.draw.pick({1, 1, 2, 3});
  if (s.draw.chance(1)) s.layers *= 4;
  s.fused_attention = s.stack() && (s.context > 1 || s.latent || s.draw.chance(50));
  s.execution = s.draw.word({"fused", "fused", "eager", "compiled"});
  if (!s.stack()) s.execution = "eager";
}

}  // namespace trainyard::fuzz
