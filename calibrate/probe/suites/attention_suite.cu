// Fused attention, forward and backward: cuDNN's, which frameworks use, and a tiled kernel of our
// own, which runs everywhere and bounds the other from below. Layout [batch][heads][length][head
// size], fp16 and bf16. Operands are rotated past the L2 cache.
#include <algorithm>
#include <cmath>
#include <memory>

#include "attention_backward.cuh"
#include "attention_shapes.h"
#include "cudnn_attention.h"
#include "suite.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Where one call's tensors lie, from the beginning of its copy.
struct Places {
  std::size_t q, k, v, o, lse, d_o, dq, dk, dv, end;
};

Places places_of(const AttentionProblem& p) {
  const std::size_t queries = aligned(p.query_elements() * 2);
  const std::size_t keys = aligned(p.key_elements() * 2);
  const std::size_t rows = aligned(p.query_elements() / static_cast<std::size_t>(p.head_size) * 4);
  Places at{};
  std::size_t end = 0;
  const auto next = [&end](std::size_t bytes) { return (end += bytes) - bytes; };
  at.q = next(queries);
  at.k = next(keys);
  at.v = next(keys);
  at.o = next(queries);
  at.lse = next(rows);
  at.d_o = next(queries);
  at.dq = next(queries);
  at.dk = next(keys);
  at.dv = next(keys);
  at.end = end;
  return at;
}

AttentionTensors tensors_at(std::byte* copy, const Places& at) {
  return {copy + at.q,   copy + at.k,  copy + at.v,  copy + at.o, copy + at.lse,
          copy + at.d_o, copy + at.dq, copy + at.dk, copy + at.dv};
}

class AttentionRun {
 public:
  explicit AttentionRun(Context& context)
      : context_(context),
        stopwatch_(stream_),
        arena_(std::min(std::size_t{8} << 30, free_memory() / 2)) {
    scratch_ = DeviceBuffer(std::min(std::size_t{4} << 30, free_memory() / 2));
  }

  void run() {
    const std::string why = cudnn_attention_absent();
    if (!why.empty()) context_.note("attention: without cuDNN: " + why);
    // Two types of 16 bits run at the same speed, so fp16 can wait.
    for (const Type type : {Type::bf16, Type::fp16}) {
      if (type == Type::fp16 && context_.quick) continue;
      fill_random(type, arena_.data(), arena_.bytes() / 2, 1, stream_);
      for (const AttentionProblem& problem : attention_problems(context_.quick)) {
        if (!context_.go_on()) break;
        measure_problem(problem, type, why.empty());
      }
    }
    if (too_large_ > 0) {
      context_.note("attention: " + std::to_string(too_large_) +
                    " shapes left out, whose tensors do not fit into the memory");
    }
  }

 private:
  void measure_problem(const AttentionProblem& problem, Type type, bool with_cudnn) {
    const Places at = places_of(problem);
    // Delta and dQ in fp32: what the tiled backward pass needs beside its operands.
    if (at.end > arena_.bytes() || problem.query_elements() * 5 > scratch_.bytes()) {
      ++too_large_;
      return;
    }
    const Rotation rotation = rotate(at.end, context_.device().l2_bytes, arena_.bytes());
    if (with_cudnn) measure_cudnn(problem, type, at, rotation);
    if (type == Type::bf16) {
      measure_tiled<__nv_bfloat16>(problem, type, at, rotation);
    } else {
      measure_tiled<__half>(problem, type, at, rotation);
    }
  }

  void measure_cudnn(const AttentionProblem& problem, Type type, const Places& at,
                     const Rotation& rotation) {
    for (const bool backward : {false, true}) {
      if (!context_.go_on()) return;  // a plan alone takes a second
      std::string refused;
      const auto plan = cudnn_attention(problem, type, backward, stream_, refused);
      if (plan == nullptr || plan->workspace_bytes() > scratch_.bytes()) {
        if (plan != nullptr) refused = "its workspace does not fit";
        if (!said_[backward]) {
          context_.note(std::string("attention: cuDNN has no engine ") +
                        (backward ? "backward" : "forward") + " for some shapes: " + refused);
        }
        said_[backward] = true;
        continue;
      }
      timed("cudnn", problem, type, backward, rotation, [&](long long call) {
        plan->enqueue(tensors_at(arena_.data() + rotation.offset(call), at), scratch_.data());
      });
    }
  }

  template <typename T>
  void measure_tiled(const AttentionProblem& p, Type type, const Places& at,
                     const Rotation& rotation) {
    const AttentionShape shape{p.batch,  p.heads,     p.kv_heads, p.length,
                               p.length, p.head_size, p.causal};
    const float scale = 1 / std::sqrt(static_cast<float>(p.head_size));
    const std::size_t sums = aligned(p.query_elements() * sizeof(float));
    for (const bool backward : {false, true}) {
      timed("tiled", p, type, backward, rotation, [&](long long call) {
        const AttentionTensors t = tensors_at(arena_.data() + rotation.offset(call), at);
        const auto as = [](void* data) { return static_cast<T*>(data); };
        const auto floats = [](void* data) { return static_cast<float*>(data); };
        if (!backward) {
          launch_attention<T>({as(t.q), as(t.k), as(t.v), as(t.o), floats(t.lse), shape, scale},
                              stream_);
        } else {
          launch_attention_backward<T>(
              {as(t.q), as(t.k), as(t.v), as(t.o), as(t.d_o), floats(t.lse),
               scratch_.as<float>(sums), scratch_.as<float>(), as(t.dq), as(t.dk), as(t.dv), shape,
               scale},
              stream_);
        }
        PROBE_LAUNCHED();
      });
    }
  }

  // Before a backward pass is timed, the forward pass of the same kind has filled O and lse of all
  // copies: it ran in whole rounds of them.
  void timed(const char* implementation, const AttentionProblem& p, Type type, bool backward,
             const Rotation& rotation, const Work& work) {
    if (!context_.go_on()) return;
    TimingOptions options;
    options.copies = rotation.copies;
    options.limit_us = context_.quick ? 10'000 : 50'000;
    const Timing timing = stopwatch_.measure(work, options);
    context_.show(std::string("attention ") + implementation + " " + type_name(type) + " " +
                  std::to_string(p.batch) + " x " + std::to_string(p.heads) + " x " +
                  std::to_string(p.length) + (backward ? " backward" : ""));
    context_.samples.write(Sample("attention")
                               .text("implementation", implementation)
                               .text("dtype", type_name(type))
                               .number("batch", p.batch)
                               .number("heads", p.heads)
                               .number("kv_heads", p.kv_heads)
                               .number("query_length", p.length)
                               .number("key_length", p.length)
                               .number("head_size", p.head_size)
                               .flag("causal", p.causal)
                               .flag("backward", backward)
                               .timing(timing));
  }

  Context& context_;
  Stream stream_;
  Stopwatch stopwatch_;
  DeviceBuffer arena_, scratch_;
  int too_large_ = 0;
  bool said_[2] = {};
};

}  // namespace

void run_attention(Context& context) {
  AttentionRun(context).run();
}

}  // namespace trainyard::probe
