// Memory-bound kernels to measure: what each reads and writes, and how to start it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "type.h"

namespace trainyard::probe {

// A piece of memory that a kernel is given.
struct Operand {
  enum class Content {
    random,    // numbers of the case's type, in (-1, 1)
    positive,  // floats in [0, 1): a second moment, a deviation
    ids        // int32 in [0, bound)
  };
  std::size_t bytes = 0;
  // Bytes that must cross HBM at least once: all of it, or the part that the kernel touches.
  std::size_t read = 0;
  std::size_t written = 0;
  Content content = Content::random;
  std::int32_t bound = 0;
  // One for all copies of the rotation: scratch, or a table of which every call reads other rows.
  bool shared = false;
};

struct MemoryCase {
  std::string op, variant;
  std::int64_t rows = 0, columns = 0;
  std::vector<Operand> operands;
  std::function<void(std::byte* const* operands, cudaStream_t stream)> run;

  std::size_t read_bytes() const;
  std::size_t written_bytes() const;
};

Operand input(std::size_t bytes);
Operand output(std::size_t bytes);
Operand in_place(std::size_t bytes);
// Partial sums, too small to leave the cache: the same memory for every call, as an allocator that
// keeps freed blocks gives it.
Operand scratch(std::size_t bytes);

// What `copy` of a rotation holds at `index` of an operand of ids: the device fills it by this
// rule, and the host counts by it how many rows of a table are touched.
std::int32_t random_id(std::uint64_t index, std::uint64_t copy, std::int32_t bound);
std::int64_t distinct_ids(std::int64_t count, std::int32_t bound);  // of copy 0

// All cases whose largest tensor has about `bytes`. fp32, fp16 or bf16.
std::vector<MemoryCase> flat_cases(Type type, std::size_t bytes);  // by element
std::vector<MemoryCase> row_cases(Type type, std::size_t bytes);   // by row, channel, window, token

}  // namespace trainyard::probe
