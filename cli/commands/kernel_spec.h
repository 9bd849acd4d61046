// Kernels as people write them: "gemm:m=4096,n=4096,k=4096,dtype=bf16", or a row of a table.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/layer/kernel.h"

namespace trainyard::cli {

// What is wrong with a spec, and what is known.
class SpecError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct AskedKernel {
  std::string text;  // as it was written, or the row's keys and values
  models::Kernel kernel;
  bool in_short_run = false;  // and not in one that has settled
};

using KeyValues = std::vector<std::pair<std::string, std::string>>;

// "KIND:KEY=VALUE,...", or "gemm:MxNxK,...". `usual`: the type where none is said. Throws
// SpecError.
AskedKernel parse_kernel(const std::string& spec, models::Dtype usual);

// Why a kernel is refused; empty: it is not.
using Refusal = std::function<std::string(const models::Kernel&)>;

// A CSV file whose first line names the keys, one of them `kind`; an empty cell says nothing, and
// empty lines and those that begin with # are passed over. Throws ScenarioError with every wrong
// line, or if it cannot be read.
std::vector<AskedKernel> read_kernels(const std::string& path, models::Dtype usual,
                                      const Refusal& refusal);

}  // namespace trainyard::cli
