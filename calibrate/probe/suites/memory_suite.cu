// Memory-bound kernels as training has them, by size: op and variant of docs/samples.md.
//
// Cold: every call finds its operands in another copy, so that none is in the L2 cache that was not
// read or written in the last 2 x L2 of traffic. 512 copies at most: operands of less than 0.4 % of
// the cache stay in it in part. Variants that end in "-warm" use the same operands in every call,
// up to twice the cache: what a kernel finds that reads what the one before it wrote.
#include <algorithm>

#include "element.cuh"
#include "memory_case.h"
#include "suite.h"
#include "timing.h"

namespace trainyard::probe {

std::size_t MemoryCase::read_bytes() const {
  std::size_t sum = 0;
  for (const Operand& operand : operands)
    sum += operand.read;
  return sum;
}

std::size_t MemoryCase::written_bytes() const {
  std::size_t sum = 0;
  for (const Operand& operand : operands)
    sum += operand.written;
  return sum;
}

namespace {

Operand operand_of(std::size_t bytes, std::size_t read, std::size_t written) {
  Operand operand;
  operand.bytes = bytes;
  operand.read = read;
  operand.written = written;
  return operand;
}

constexpr int kCopies = 512;
constexpr std::uint64_t kIdSeed = 0x1d5;

TRAINYARD_BOTH std::int32_t id_of(std::uint64_t index, std::uint64_t copy, std::int32_t bound) {
  return static_cast<std::int32_t>(philox(index, copy, kIdSeed).word[0] %
                                   static_cast<std::uint32_t>(bound));
}

__global__ void fill_ids_kernel(std::int32_t* ids, std::int64_t count, std::uint64_t copy,
                                std::int32_t bound) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    ids[i] = id_of(static_cast<std::uint64_t>(i), copy, bound);
  }
}

__global__ void fill_positive_kernel(float* values, std::int64_t count) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    values[i] = static_cast<float>(philox(static_cast<std::uint64_t>(i), 0, kIdSeed).word[1] >> 8) *
                0x1p-24f;
  }
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Where the operands of each call lie in the arena: the shared ones first, then the copies.
class Layout {
 public:
  Layout(const MemoryCase& c, std::byte* arena, std::size_t arena_bytes, std::size_t l2_bytes,
         bool warm)
      : case_(c), arena_(arena) {
    std::size_t each = 0;
    for (const Operand& operand : c.operands) {
      std::size_t& end = operand.shared ? shared_ : each;
      places_.push_back(end);
      end += aligned(operand.bytes);
    }
    fits_ = shared_ + each <= arena_bytes;
    if (!fits_) return;
    rotation_ =
        warm ? Rotation{each, 1} : rotate(each, l2_bytes, arena_bytes - shared_, 2, kCopies);
  }

  bool fits() const { return fits_; }
  int copies() const { return rotation_.copies; }

  std::vector<std::byte*> operands(long long call) const {
    std::vector<std::byte*> result;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::size_t copy = case_.operands[i].shared ? 0 : shared_ + rotation_.offset(call);
      result.push_back(arena_ + copy + places_[i]);
    }
    return result;
  }

  // Contents that random numbers of the type would not be.
  void fill(cudaStream_t stream) const {
    for (int copy = 0; copy < copies(); ++copy) {
      const auto data = operands(copy);
      for (std::size_t i = 0; i < data.size(); ++i) {
        const Operand& operand = case_.operands[i];
        const auto count = static_cast<std::int64_t>(operand.bytes / 4);
        if (operand.content == Operand::Content::ids) {
          fill_ids_kernel<<<grid_for(count), kBlock, 0, stream>>>(
              reinterpret_cast<std::int32_t*>(data[i]), count, static_cast<std::uint64_t>(copy),
              operand.bound);
        } else if (operand.content == Operand::Content::positive) {
          fill_positive_kernel<<<grid_for(count), kBlock, 0, stream>>>(
              reinterpret_cast<float*>(data[i]), count);
        }
        PROBE_LAUNCHED();
      }
    }
  }

 private:
  const MemoryCase& case_;
  std::byte* arena_;
  std::vector<std::size_t> places_;
  std::size_t shared_ = 0;
  Rotation rotation_;
  bool fits_ = false;
};

class MemoryRun {
 public:
  explicit MemoryRun(Context& context)
      : context_(context),
        stopwatch_(stream_),
        arena_(std::min(std::size_t{8} << 30, free_memory() / 10 * 7)) {}

  void run() {
    // Coarse sizes first, so that a budget that ends early leaves whole curves.
    constexpr int kCoarse[] = {26, 20, 30, 16, 23, 28, 18};
    constexpr int kFine[] = {25, 21, 27, 19, 24, 29, 22, 17};
    for (const int power : kCoarse)
      sizes(power);
    for (const int power : kFine) {
      if (!context_.quick) sizes(power);
    }
    if (too_large_ > 0) {
      context_.note("memory: " + std::to_string(too_large_) +
                    " cases left out, whose operands do not fit into " +
                    std::to_string(arena_.bytes() >> 20) + " MiB");
    }
  }

 private:
  void sizes(int power) {
    const std::size_t bytes = std::size_t{1} << power;
    for (const Type type : {Type::bf16, Type::fp32, Type::fp16}) {
      if (!context_.go_on()) return;
      // Again for every size: kernels that work in place leave their results behind.
      fill_random(type, arena_.data(), arena_.bytes() / type_bytes(type), 1, stream_);
      for (const auto cases : {flat_cases, row_cases})
        for (const MemoryCase& c : cases(type, bytes))
          measure_case(c, type);
    }
  }

  void measure_case(const MemoryCase& c, Type type) {
    const std::size_t traffic = c.read_bytes() + c.written_bytes();
    for (const bool warm : {false, true}) {
      if (!context_.go_on()) return;
      if (warm && traffic > 2 * context_.device().l2_bytes) return;
      const Layout layout(c, arena_.data(), arena_.bytes(), context_.device().l2_bytes, warm);
      if (!layout.fits()) {
        ++too_large_;
        return;
      }
      layout.fill(stream_);
      write(c, type, warm, measure_layout(c, layout));
    }
  }

  Timing measure_layout(const MemoryCase& c, const Layout& layout) {
    TimingOptions options;
    options.copies = layout.copies();
    options.limit_us = context_.quick ? 5'000 : 20'000;
    return stopwatch_.measure(
        [&](long long call) {
          c.run(layout.operands(call).data(), stream_);
          PROBE_LAUNCHED();
        },
        options);
  }

  void write(const MemoryCase& c, Type type, bool warm, const Timing& timing) {
    const std::string variant = c.variant + (warm ? "-warm" : "");
    context_.show("memory " + c.op + " " + variant + " " + type_name(type) + " " +
                  std::to_string(c.rows) + " x " + std::to_string(c.columns));
    context_.samples.write(Sample("memory")
                               .text("op", c.op)
                               .text("variant", variant)
                               .text("dtype", type_name(type))
                               .number("rows", c.rows)
                               .number("columns", c.columns)
                               .number("read_bytes", c.read_bytes())
                               .number("written_bytes", c.written_bytes())
                               .timing(timing));
  }

  Context& context_;
  Stream stream_;
  Stopwatch stopwatch_;
  DeviceBuffer arena_;
  int too_large_ = 0;
};

}  // namespace

Operand input(std::size_t bytes) {
  return operand_of(bytes, bytes, 0);
}
Operand output(std::size_t bytes) {
  return operand_of(bytes, 0, bytes);
}
Operand in_place(std::size_t bytes) {
  return operand_of(bytes, bytes, bytes);
}
Operand scratch(std::size_t bytes) {
  Operand operand = operand_of(bytes, 0, 0);
  operand.shared = true;
  return operand;
}

std::int32_t random_id(std::uint64_t index, std::uint64_t copy, std::int32_t bound) {
  return id_of(index, copy, bound);
}

std::int64_t distinct_ids(std::int64_t count, std::int32_t bound) {
  std::vector<bool> seen(static_cast<std::size_t>(bound));
  std::int64_t distinct = 0;
  for (std::int64_t i = 0; i < count && distinct < bound; ++i) {
    const auto id = static_cast<std::size_t>(random_id(static_cast<std::uint64_t>(i), 0, bound));
    if (!seen[id]) ++distinct;
    seen[id] = true;
  }
  return distinct;
}

void run_memory(Context& context) {
  MemoryRun(context).run();
}

}  // namespace trainyard::probe
