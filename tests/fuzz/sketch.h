// What the parts of a plan must agree on, drawn before any of them, and the parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "sim/json/value.h"
#include "sim/schedule/schedule.h"
#include "tests/fuzz/draw.h"
#include "tests/fuzz/plan.h"

namespace trainyard::fuzz {

enum class Kind : std::uint8_t {
  decoder,
  encoder,
  encoder_decoder,
  vision,
  recommender,
  layers,
};

struct Sketch {
  Sketch(Draw& choices, Plan& drawn) : draw(choices), plan(drawn) {}

  Draw& draw;
  Plan& plan;

  Kind kind = Kind::decoder;
  bool experts = false, latent = false, hybrid = false;
  std::string preset;  // of the network; empty: described
  int tensor = 1, context = 1, pipeline = 1, data = 1;
  int expert_ranks = 1, expert_tensor = 1;
  bool sequence_parallel = false, chunked = false, ulysses = false;
  const schedule::ScheduleEntry* schedule = nullptr;  // nullptr: custom
  bool overlap_passes = false;
  int chunks = 1, microbatches = 1, micro_batch = 1, layers = 1;
  int sequence_length = 64;
  bool fused_attention = false;
  std::string execution = "fused";
  std::string strategy = "allreduce";
  bool offloads = false, compute_fp8 = false, narrow = false, autocast = false;
  bool updates = true, forward_only = false;
  // Of the machine.
  bool has_bf16 = true, has_fp8 = false, has_host = true, has_power = true;
  int servers = 1, gpus = 1;
  bool mixed = false;  // servers of several kinds

  int world() const { return tensor * context * pipeline * data; }
  bool tokens() const {
    return kind == Kind::decoder || kind == Kind::encoder || kind == Kind::encoder_decoder;
  }
  bool stack() const { return tokens() || kind == Kind::vision; }

  template <class T>
  void set(std::string_view pointer, const T& value) const {
    if constexpr (std::is_same_v<T, json::Value>)
      json::set(plan.scenario, pointer, value);
    else
      json::set(plan.scenario, pointer, json::Value::of(value));
  }
};

void sketch_degrees(Sketch& s);    // kind, degrees, schedule and batch
void draw_machine(Sketch& s);      // /cluster
void draw_network(Sketch& s);      // /model
void draw_training(Sketch& s);     // /training
void choose_strategy(Sketch& s);   // of data parallelism, and whether anything is offloaded
void draw_parallelism(Sketch& s);  // /parallelism
void draw_rest(Sketch& s);         // /collectives, /simulation, /perturbations, /variants, ...

}  // namespace trainyard::fuzz
