// One convolution by cuDNN, with the algorithm that cuDNN finds fastest. Only for builds with
// cuDNN.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string>

#include "convolution_shapes.h"
#include "type.h"

namespace trainyard::probe {

enum class ConvolutionPass { forward, data_gradient, weight_gradient };
const char* pass_name(ConvolutionPass pass);

// Tensors of one call: two are read and the third is written, by the pass.
struct ConvolutionTensors {
  void *x, *w, *y;
};

class CudnnConvolution {
 public:
  // fp16 and bf16: NHWC, tensor cores, sums in fp32. fp32 and tf32: NCHW. Throws CudnnError if
  // cuDNN has no such convolution.
  CudnnConvolution(cudnnHandle_t handle, const ConvolutionLayer& layer, int batch, Type type);
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;
  ~CudnnConvolution();

  std::size_t x_bytes() const { return x_bytes_; }
  std::size_t w_bytes() const { return w_bytes_; }
  std::size_t y_bytes() const { return y_bytes_; }

  // Tries the algorithms on the tensors, as frameworks do when told to benchmark, and keeps the
  // fastest.
  void choose(ConvolutionPass pass, const ConvolutionTensors& tensors, void* workspace,
              std::size_t workspace_bytes);
  void enqueue(const ConvolutionTensors& tensors, void* workspace) const;

 private:
  cudnnHandle_t handle_;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t rule_ = nullptr;
  std::size_t x_bytes_ = 0, w_bytes_ = 0, y_bytes_ = 0;
  ConvolutionPass pass_ = ConvolutionPass::forward;
  int algorithm_ = 0;  // an enumerator of the pass's own type
  std::size_t workspace_bytes_ = 0;
  bool exact_ = false;  // fp32: nothing may be rounded to tf32
};

}  // namespace trainyard::probe
