// Matrix products of the sizes that training has, by cuBLASLt.
#include <algorithm>
#include <optional>

#include "matmul.h"
#include "suite.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

// Number formats take turns, so that whenever time is over each has its share of shapes.
struct Turn {
  Type type;
  std::size_t per_round;
  std::size_t most;
};
constexpr Turn kTurns[] = {
    {Type::bf16, 24, 1500}, {Type::fp16, 12, 700}, {Type::fp8, 16, 900},
    {Type::tf32, 8, 400},   {Type::fp32, 6, 250},
};

struct Arena {
  DeviceBuffer input, output;
  std::size_t l2_bytes = 0;
};

// Half of what is free, and not more than any shape and its copies can use.
Arena make_arena(const DeviceInfo& device) {
  const std::size_t each = std::min(std::size_t{4} << 30, free_memory() / 5 * 2);
  Arena arena;
  arena.input = DeviceBuffer(each);
  arena.output = DeviceBuffer(each);
  arena.l2_bytes = device.l2_bytes;
  return arena;
}

TimingOptions timing_options(bool quick) {
  TimingOptions options;
  options.limit_us = quick ? 8'000 : 40'000;
  options.interval_us = quick ? 100 : 200;
  return options;
}

std::optional<Timing> measure_product(const Matmul& product, const GemmShape& shape, Type type,
                                      const Arena& arena, Stopwatch& stopwatch, cudaStream_t stream,
                                      TimingOptions options) {
  const Operands operands = operands_of(shape, type);
  if (operands.input_bytes > arena.input.bytes() || operands.output_bytes > arena.output.bytes())
    return std::nullopt;
  // As many copies of what is read as of what is written; together they leave the cache.
  const std::size_t both = operands.input_bytes + operands.output_bytes;
  const std::size_t most = std::min(arena.input.bytes() / operands.input_bytes,
                                    arena.output.bytes() / operands.output_bytes);
  const Rotation together = rotate(both, arena.l2_bytes, both * most);
  const Rotation inputs{operands.input_bytes, together.copies};
  const Rotation outputs{operands.output_bytes, together.copies};
  options.copies = together.copies;
  return stopwatch.measure(
      [&](long long call) {
        product.enqueue(arena.input.data() + inputs.offset(call),
                        arena.output.data() + outputs.offset(call), stream);
      },
      options);
}

struct Line {
  Turn turn;
  std::vector<GemmShape> shapes;
  std::size_t next = 0;
  std::size_t refused = 0;  // by cuBLASLt
  std::string refusal;      // what it said last, if it said more than that it has no algorithm
};

class GemmRun {
 public:
  explicit GemmRun(Context& context)
      : context_(context), stopwatch_(stream_), arena_(make_arena(context.device())) {
    GemmLimits limits;
    limits.input_bytes = arena_.input.bytes() - 512;  // two operands padded to 256
    limits.output_bytes = arena_.output.bytes() - 256;
    for (const Turn& turn : kTurns) {
      if (!can_multiply(context.device(), turn.type)) {
        context.note(std::string("gemm: this GPU does not multiply ") + type_name(turn.type));
        continue;
      }
      GemmLimits own = limits;
      if (turn.type == Type::fp32) own.flops = 2e12;  // 20 TFLOP/s: 0.1 s a call
      lines_.push_back({turn, gemm_shapes(turn.type, turn.most, own), 0, 0, {}});
    }
  }

  void run() {
    warm_up_device(stream_, context_.quick ? 0.1 : 0.5);
    while (context_.go_on() && round()) {
    }
    for (const Line& line : lines_)
      if (line.refused > 0)
        context_.note("gemm: cuBLASLt has no algorithm for " + std::to_string(line.refused) +
                      " shapes of " + type_name(line.turn.type) +
                      (line.refusal.empty() ? "" : "; the last error: " + line.refusal));
  }

 private:
  // False when every list is done.
  bool round() {
    bool any = false;
    for (Line& line : lines_) {
      if (line.next >= line.shapes.size()) continue;
      any = true;
      const Type type = line.turn.type;
      fill_random(type, arena_.input.data(), arena_.input.bytes() / type_bytes(type), 1, stream_);
      const std::size_t end = std::min(line.next + line.turn.per_round, line.shapes.size());
      for (; line.next < end && context_.go_on(); ++line.next)
        one(line, line.shapes[line.next]);
    }
    return any;
  }

  void one(Line& line, const GemmShape& shape) {
    const Type type = line.turn.type;
    context_.show(std::string("gemm ") + type_name(type) + " " + std::to_string(shape.m) + " x " +
                  std::to_string(shape.n) + " x " + std::to_string(shape.k));
    std::optional<Timing> timing;
    std::string algorithm;
    try {
      const Matmul product(library_, shape, type);
      algorithm = product.algorithm();
      if (product.supported())
        timing = measure_product(product, shape, type, arena_, stopwatch_, stream_,
                                 timing_options(context_.quick));
    } catch (const CublasError& error) {
      stream_.wait();  // a device that has failed ends the suite; one shape does not
      line.refusal = error.what();
    }
    if (!timing) {
      ++line.refused;
      return;
    }
    context_.samples.write(Sample("gemm")
                               .text("dtype", type_name(type))
                               .number("m", shape.m)
                               .number("n", shape.n)
                               .number("k", shape.k)
                               .number("batch", shape.batch)
                               .text("layout", layout_name(shape.layout))
                               .text("algorithm", algorithm)
                               .timing(*timing));
  }

  Context& context_;
  Stream stream_;
  Stopwatch stopwatch_;
  MatmulLibrary library_;
  Arena arena_;
  std::vector<Line> lines_;
};

}  // namespace

void run_gemm(Context& context) {
  GemmRun(context).run();
}

}  // namespace trainyard::probe
