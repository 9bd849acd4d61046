#include "matmul.h"

#include <cstring>

namespace trainyard::probe {
namespace {

// What PyTorch gives cuBLAS on Hopper; the heuristic leaves out algorithms that want more.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

void check_cublas(cublasStatus_t status, const char* call, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string function(call, std::strcspn(call, "("));  // the arguments say nothing
  throw CublasError("matmul.cpp:" + std::to_string(line) + ": " + function + ": " +
                    cublasLtGetStatusString(status));
}
#define PROBE_CUBLAS(call) check_cublas((call), #call, __LINE__)

std::size_t padded(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

cudaDataType_t input_type(Type type) {
  switch (type) {
    case Type::fp32:
    case Type::tf32: return CUDA_R_32F;
    case Type::fp16: return CUDA_R_16F;
    case Type::bf16: return CUDA_R_16BF;
    case Type::fp8: return CUDA_R_8F_E4M3;
  }
  return CUDA_R_32F;
}

template <class T>
void set(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t which, const T& value) {
  PROBE_CUBLAS(cublasLtMatmulDescSetAttribute(descriptor, which, &value, sizeof value));
}

template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const T& value) {
  PROBE_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof value));
}

int configured(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t which) {
  std::int32_t value = -1;
  std::size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algo, which, &value, sizeof value, &written);
  return value;
}

}  // namespace

MatmulLibrary::MatmulLibrary() : workspace_(kWorkspace), one_(sizeof(float)) {
  cublasLtHandle_t handle = nullptr;
  PROBE_CUBLAS(cublasLtCreate(&handle));
  handle_.reset(handle);
  const float one = 1;
  PROBE_CUDA(cudaMemcpy(one_.data(), &one, sizeof one, cudaMemcpyHostToDevice));
  PROBE_CUDA(cudaDeviceSynchronize());  // streams of ours do not wait for the default stream
}

Operands operands_of(const GemmShape& shape, Type type) {
  const std::size_t size = type_bytes(type);
  const auto bytes = [&](std::int64_t rows, std::int64_t columns) {
    return padded(static_cast<std::size_t>(rows * columns * shape.batch) * size);
  };
  Operands operands;
  operands.b_offset = bytes(shape.n, shape.k);
  operands.input_bytes = operands.b_offset + bytes(shape.k, shape.m);
  operands.output_bytes = padded(shape.output_bytes(type));
  return operands;
}

bool can_multiply(const DeviceInfo& device, Type type) {
  switch (type) {
    case Type::fp32: return true;
    case Type::fp16: return device.at_least(7, 0);
    case Type::tf32:
    case Type::bf16: return device.at_least(8, 0);
    case Type::fp8: return device.at_least(8, 9);
  }
  return false;
}

Matmul::Matmul(const MatmulLibrary& library, const GemmShape& shape, Type type)
    : library_(library), operands_(operands_of(shape, type)) {
  describe(shape, type);
  choose();
}

Matmul::MatrixLayout Matmul::matrix(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                    std::int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  PROBE_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows));
  MatrixLayout owner(layout);
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  }
  return owner;
}

void Matmul::describe(const GemmShape& shape, Type type) {
  const std::int64_t rows = shape.n, columns = shape.m, depth = shape.k;
  const bool turned_a = shape.layout == Layout::tn;
  const bool turned_b = shape.layout == Layout::nt;
  const cudaDataType_t input = input_type(type);
  const cudaDataType_t output = type == Type::fp8 ? CUDA_R_16BF : input;

  cublasLtMatmulDesc_t descriptor = nullptr;
  PROBE_CUBLAS(cublasLtMatmulDescCreate(
      &descriptor, type == Type::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      CUDA_R_32F));
  descriptor_.reset(descriptor);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA,
      static_cast<std::int32_t>(turned_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB,
      static_cast<std::int32_t>(turned_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (type == Type::fp8) {
    // One scale per tensor. Sums in full fp32, not Hopper's fast accumulation: two of the three
    // products of a layer, its gradients, are computed so (Transformer Engine, fp8 recipe).
    const void* scale = library_.one();
    set(descriptor, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale);
    set(descriptor, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale);
    set(descriptor, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(0));
  }
  a_ = matrix(input, turned_a ? depth : rows, turned_a ? rows : depth, shape.batch);
  b_ = matrix(input, turned_b ? columns : depth, turned_b ? depth : columns, shape.batch);
  d_ = matrix(output, rows, columns, shape.batch);
}

void Matmul::choose() {
  cublasLtMatmulPreference_t preference = nullptr;
  PROBE_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  const Preference owner(preference);
  const std::size_t workspace = library_.workspace().bytes();
  PROBE_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library_.handle(), descriptor_.get(), a_.get(), b_.get(),
                                     d_.get(), d_.get(), preference, 1, &result, &found);
  supported_ =
      status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  if (!supported_) return;
  algo_ = result.algo;
  algorithm_ = std::to_string(configured(algo_, CUBLASLT_ALGO_CONFIG_ID)) + " tile " +
               std::to_string(configured(algo_, CUBLASLT_ALGO_CONFIG_TILE_ID)) + " split " +
               std::to_string(configured(algo_, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
}

void Matmul::enqueue(const void* input, void* output, cudaStream_t stream) const {
  const float one = 1, zero = 0;  // on the host, as the default pointer mode expects
  const auto* a = static_cast<const std::byte*>(input);
  PROBE_CUBLAS(cublasLtMatmul(library_.handle(), descriptor_.get(), &one, a, a_.get(),
                              a + operands_.b_offset, b_.get(), &zero, output, d_.get(), output,
                              d_.get(), &algo_, library_.workspace().data(),
                              library_.workspace().bytes(), stream));
}

}  // namespace trainyard::probe
