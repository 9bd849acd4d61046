// One matrix product by cuBLASLt, as PyTorch asks for it: the first algorithm of the heuristic, 32
// MiB of workspace, sums in fp32.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>

#include "device.h"
#include "gemm_shapes.h"

namespace trainyard::probe {

class CublasError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Handle, workspace and scales, shared by the products of a device.
class MatmulLibrary {
 public:
  MatmulLibrary();

  cublasLtHandle_t handle() const { return handle_.get(); }
  const DeviceBuffer& workspace() const { return workspace_; }
  const float* one() const { return one_.as<float>(); }  // on the device: scale of fp8 operands

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  std::unique_ptr<cublasLtContext, Destroy> handle_;
  DeviceBuffer workspace_;
  DeviceBuffer one_;
};

// Where the operands of a product lie in one block of memory. In the words of cuBLAS, whose
// matrices are column by column: D[rows, columns] = op(A) op(B), rows = n and columns = m of the
// shape.
struct Operands {
  std::size_t b_offset = 0;     // A is at 0; a multiple of 256
  std::size_t input_bytes = 0;  // of both, padded to 256 each
  std::size_t output_bytes = 0;
};
Operands operands_of(const GemmShape& shape, Type type);

// What the device can multiply.
bool can_multiply(const DeviceInfo& device, Type type);

class Matmul {
 public:
  // Chooses the algorithm. Requires: `library` lives longer.
  Matmul(const MatmulLibrary& library, const GemmShape& shape, Type type);

  bool supported() const { return supported_; }
  const std::string& algorithm() const { return algorithm_; }
  // Enqueues the product. Requires: supported; `input` and `output` aligned to 256 bytes, with the
  // layout of operands_of.
  void enqueue(const void* input, void* output, cudaStream_t stream) const;

 private:
  template <class T, cublasStatus_t (*destroy)(T*)>
  struct Destroy {
    void operator()(T* value) const { destroy(value); }
  };
  using Descriptor =
      std::unique_ptr<cublasLtMatmulDescOpaque_t,
                      Destroy<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>>;
  using MatrixLayout =
      std::unique_ptr<cublasLtMatrixLayoutOpaque_t,
                      Destroy<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>>;
  using Preference =
      std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                      Destroy<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>>;

  static MatrixLayout matrix(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                             std::int64_t batch);
  void describe(const GemmShape& shape, Type type);
  void choose();

  const MatmulLibrary& library_;
  Operands operands_;
  Descriptor descriptor_;
  MatrixLayout a_, b_, d_;
  cublasLtMatmulAlgo_t algo_ = {};
  bool supported_ = false;
  std::string algorithm_;
};

}  // namespace trainyard::probe
