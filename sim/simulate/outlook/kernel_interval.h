// How far off the time of one kernel may be: the errors of measured kernels of its class, which
// configs/accuracy/kernels.json holds (./dev validate --records DIR --write), or those that the
// profile's own calibration held out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/base/basis.h"
#include "sim/base/units.h"
#include "sim/cost/profile.h"

namespace trainyard::simulate {

// Measured / predicted of the kernels of one operation, on GPUs with a profile of their own or not.
struct KernelClass {
  std::string operation;     // as operation_of() says it
  bool profile = false;      // the GPU has its own
  int rows = 0;              // measured kernels
  double low = 1, high = 1;  // tenth and ninetieth percentile
};

// "gemm", "grouped_gemm", "attention", "convolution" or "memory"; empty for a given time.
std::string operation_of(const models::Kernel& kernel);

// Throws ScenarioError if the file is wrong.
std::vector<KernelClass> read_kernel_classes(const std::string& path);

// "collective in a server up to 4 MiB", "collective between servers above 4 MiB in closed form":
// what a law was not fitted to, or none was, is a class of its own, as are GPUs that PCIe joins.
std::string operation_of_collective(Bytes bytes, int servers, Basis basis, bool over_pcie);

// 8 in 10 kernels like it.
struct KernelInterval {
  Seconds low{}, high{};
  std::string of;  // "4500 measured: gemm, GPUs with a profile"
};

// Of the class of this operation; nothing where there is none.
std::optional<KernelInterval> class_interval(const std::vector<KernelClass>& classes,
                                             const std::string& operation, bool profile,
                                             Seconds time);

// A calibration that held samples of the operation out says it first: normal and Laplace errors of
// mean size e both have 8 in 10 within 1.61 e. Then the class. Nothing where neither is known.
std::optional<KernelInterval> kernel_interval(const std::vector<KernelClass>& classes,
                                              const std::optional<cost::Calibration>& calibration,
                                              const models::Kernel& kernel, bool profile,
                                              Seconds time);

}  // namespace trainyard::simulate
