#include "tests/calibrate/emulated_cuda.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tests/support/rooms.h"

namespace emulated {

namespace {

constexpr std::size_t kStackBytes = 256 << 10;  // sanitizers make frames large

struct Copy {
  void* to;
  const void* from;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = true;
  std::vector<std::vector<Copy>> closed;  // groups of copies under way, oldest first
  std::vector<Copy> open;
};

struct Warp {
  void* lanes[32];
  int tag = 0;
  int arrived = 0;
  unsigned generation = 0;
};

// The block that runs.
struct Block {
  std::vector<Warp> warps;
  int threads = 0;
  int arrived = 0;
  unsigned generation = 0;
  long long progress = 0;
  std::vector<unsigned char> shared;
  const std::function<void()>* kernel = nullptr;
  const char* mistake = nullptr;
};

Block block;
std::vector<std::unique_ptr<Fiber>> fibers;
ucontext_t scheduler;
int current = 0;

void yield() {
  swapcontext(&fibers[current]->context, &scheduler);
}

void body() {
  (*block.kernel)();
  fibers[current]->done = true;
  ++block.progress;
  swapcontext(&fibers[current]->context, &scheduler);
}

void start(int thread) {
  Fiber& fiber = *fibers[thread];
  if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  fiber.done = false;
  fiber.closed.clear();
  fiber.open.clear();
  makecontext(&fiber.context, body, 0);
}

// Runs the threads of a warp, again and again, as far as they come without other warps.
void run_warp(int warp, int& left) {
  for (long long before = -1; block.progress != before;) {
    before = block.progress;
    for (int i = 0; i < 32; ++i) {
      current = warp * 32 + (downwards ? 31 - i : i);
      if (fibers[current]->done) continue;
      threadIdx.x = static_cast<unsigned>(current);
      swapcontext(&scheduler, &fibers[current]->context);
      if (fibers[current]->done) --left;
      if (block.mistake != nullptr) throw std::logic_error(block.mistake);
    }
  }
}

// Every warp goes as far ahead of the others as barriers allow: what needs a barrier and has none
// then reads what is not there yet, or what is there no more.
void run_block() {
  for (int thread = 0; thread < block.threads; ++thread) {
    start(thread);
  }
  for (int left = block.threads; left > 0;) {
    const long long before = block.progress;
    const int warps = block.threads / 32;
    for (int i = 0; i < warps; ++i) {
      run_warp(downwards ? warps - 1 - i : i, left);
    }
    if (block.progress == before) throw std::logic_error("threads wait at different barriers");
  }
  for (int thread = 0; thread < block.threads; ++thread) {
    const Fiber& fiber = *fibers[thread];
    bool under_way = !fiber.open.empty();
    for (const auto& group : fiber.closed) {
      under_way = under_way || !group.empty();
    }
    if (under_way) throw std::logic_error("a thread ended with copies under way");
  }
}

}  // namespace

void run(dim3 grid, int threads, std::size_t shared, const std::function<void()>& kernel) {
  if (threads % 32 != 0 || threads < 32 || threads > 1024) {
    throw std::logic_error("a block is 1 to 32 whole warps");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
    throw std::logic_error("no such grid");
  }
  while (static_cast<int>(fibers.size()) < threads) {
    fibers.push_back(std::make_unique<Fiber>());
  }
  gridDim = grid;
  blockDim = dim3(threads);
  block.kernel = &kernel;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        block.warps.assign(static_cast<std::size_t>(threads / 32), Warp{});
        block.threads = threads;
        block.arrived = 0;
        block.mistake = nullptr;
        // Garbage at first, as on a device: a NaN where nobody wrote shows in the result.
        block.shared.assign(shared + 16, 0xff);
        run_block();
      }
    }
  }
}

unsigned char* dynamic_shared() {
  void* data = block.shared.data();
  std::size_t space = block.shared.size();
  return static_cast<unsigned char*>(std::align(16, block.shared.size() - 16, data, space));
}

void block_barrier() {
  ++block.progress;
  if (++block.arrived == block.threads) {
    block.arrived = 0;
    ++block.generation;
    return;
  }
  const unsigned generation = block.generation;
  while (block.generation == generation) {
    yield();
  }
}

void warp_collective(int tag, void* mine, void (*all)(void* const*)) {
  Warp& warp = block.warps[static_cast<std::size_t>(current / 32)];
  ++block.progress;
  if (warp.arrived > 0 && warp.tag != tag) block.mistake = "lanes meet in different instructions";
  warp.tag = tag;
  warp.lanes[current % 32] = mine;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    ++warp.generation;
    all(warp.lanes);
    return;
  }
  const unsigned generation = warp.generation;
  while (warp.generation == generation) {
    yield();
  }
}

void start_copy(void* to, const void* from) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    block.mistake = "a copy is not aligned to 16 bytes";
  }
  fibers[current]->open.push_back({to, from});
}

void close_copies() {
  Fiber& fiber = *fibers[current];
  fiber.closed.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void finish_copies(int pending) {
  auto& closed = fibers[current]->closed;
  while (static_cast<int>(closed.size()) > pending) {
    for (const Copy& copy : closed.front()) {
      std::memcpy(copy.to, copy.from, 16);
    }
    closed.erase(closed.begin());
  }
}

std::uint16_t to_bfloat16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (std::isnan(x)) return 0x7fff;
  bits += 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

float from_bfloat16(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

std::uint16_t to_half(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7fff;
  const double size = std::abs(static_cast<double>(x));
  if (size == 0) return sign;
  if (size >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(size, &exponent);                    // size = [0.5, 1) 2^exponent
  const int unit = std::max(exponent - 11, -24);  // the value of the last bit is 2^unit
  // nearbyint rounds ties to even. A carry out of the mantissa runs into the exponent, as it
  // should.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, -unit)));
  return static_cast<std::uint16_t>(sign | ((unit + 24) * 1024 + steps));
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

}  // namespace emulated

namespace trainyard::probe {

namespace {

struct MatrixLane {
  const void* row;
  std::uint32_t* words;
};

// Lane 8 i + r says where row r of matrix i is. Lane 4 g + t gets of each matrix the pair at row g,
// columns 2 t and 2 t + 1; transposed, what stands at rows 2 t and 2 t + 1 of column g.
template <bool kTransposed>
void load_all(void* const* lanes) {
  for (int i = 0; i < 4; ++i) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      std::memcpy(matrix[r], static_cast<const MatrixLane*>(lanes[8 * i + r])->row, 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const std::uint32_t low = kTransposed ? matrix[2 * t][g] : matrix[g][2 * t];
      const std::uint32_t high = kTransposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      static_cast<const MatrixLane*>(lanes[lane])->words[i] = low | high << 16;
    }
  }
}

struct MultiplyLane {
  float* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

template <float (*kValue)(std::uint16_t)>
void multiply_all(void* const* lanes) {
  const auto value = [](std::uint32_t word, int half) {
    return kValue(static_cast<std::uint16_t>(word >> (16 * half)));
  };
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& from = *static_cast<const MultiplyLane*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      a[g][2 * t + half] = value(from.a[0], half);
      a[g + 8][2 * t + half] = value(from.a[1], half);
      a[g][2 * t + 8 + half] = value(from.a[2], half);
      a[g + 8][2 * t + 8 + half] = value(from.a[3], half);
      b[2 * t + half][g] = value(from.b[0], half);
      b[2 * t + 8 + half][g] = value(from.b[1], half);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 4; ++e) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += a[g + e / 2 * 8][k] * b[k][2 * t + e % 2];
      }
      static_cast<const MultiplyLane*>(lanes[lane])->c[e] += sum;
    }
  }
}

}  // namespace

void load_matrices(std::uint32_t (&words)[4], const void* row) {
  MatrixLane lane{row, words};
  emulated::warp_collective(2, &lane, load_all<false>);
}

void load_transposed(std::uint32_t (&words)[4], const void* row) {
  MatrixLane lane{row, words};
  emulated::warp_collective(3, &lane, load_all<true>);
}

void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  __half) {
  MultiplyLane lane{c, a, {b0, b1}};
  emulated::warp_collective(4, &lane, multiply_all<emulated::from_half>);
}

void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  __nv_bfloat16) {
  MultiplyLane lane{c, a, {b0, b1}};
  emulated::warp_collective(5, &lane, multiply_all<emulated::from_bfloat16>);
}

}  // namespace trainyard::probe
