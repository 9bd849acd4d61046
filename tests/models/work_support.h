// Executions and sums that the tests of models share.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/families/network.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

namespace trainyard {

inline Execution execution(std::int64_t micro_batch, std::int64_t sequence_length, int tensor = 1,
                           bool sequence_parallel = false, Recompute recompute = Recompute::none) {
  Execution how;
  how.micro_batch.size = micro_batch;
  how.micro_batch.sequence_length = sequence_length;
  how.tensor = tensor;
  how.tensor_parallel.sequence = sequence_parallel;
  how.recompute.form = recompute;
  how.compute = Dtype::fp16;
  return how;
}

inline const LayerWork& layer(const NetworkWork& work) {
  return work.kinds[1];
}

// A mixture of experts, if the stack has any.
inline const LayerWork& last_layer(const NetworkWork& work) {
  return work.kinds[static_cast<std::size_t>(work.chain[work.chain.size() - 2])];
}

inline Flops sum_of_flops(const std::vector<WorkItem>& items) {
  Flops sum;
  for (const WorkItem& item : items) {
    if (const auto* kernel = std::get_if<NamedKernel>(&item)) sum = sum + flops(kernel->kernel);
  }
  return sum;
}

// A gradient of weights in fp16, which sums over so many rows.
inline Gemm weight_gemm(std::int64_t m, std::int64_t n, std::int64_t rows) {
  return {.m = m, .n = n, .k = rows, .dtype = Dtype::fp16, .over_rows = true};
}

// The matrix multiplication of that name; fails without one.
inline const Gemm& gemm(const std::vector<WorkItem>& items, const std::string& name) {
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel && kernel->name == name) return std::get<Gemm>(kernel->kernel);
  }
  FAIL("no kernel named " << name);
  static const Gemm none;
  return none;
}

// The collectives in the order in which they start.
inline std::vector<GroupCollective> collectives(const std::vector<WorkItem>& items) {
  std::vector<GroupCollective> found;
  for (const WorkItem& item : items) {
    if (const auto* start = std::get_if<GroupCollective>(&item)) found.push_back(*start);
  }
  return found;
}

// Bytes that memory-bound kernels of one kind move.
inline std::int64_t bytes_of(const std::vector<WorkItem>& items, MemoryOp op) {
  std::int64_t sum = 0;
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    const auto* memory = kernel ? std::get_if<MemoryBound>(&kernel->kernel) : nullptr;
    if (memory && memory->op == op) sum += memory_traffic(*memory).count();
  }
  return sum;
}

// One line per item: the kernel's name, "start <name>" or "wait".
inline std::vector<std::string> script(const std::vector<WorkItem>& items) {
  std::vector<std::string> lines;
  for (const WorkItem& item : items) {
    if (const auto* kernel = std::get_if<NamedKernel>(&item)) {
      lines.push_back(kernel->name);
    } else if (const auto* start = std::get_if<GroupCollective>(&item)) {
      lines.push_back("start " + start->name);
    } else {
      lines.emplace_back("wait");
    }
  }
  return lines;
}

}  // namespace trainyard
