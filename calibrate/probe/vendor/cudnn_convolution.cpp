#ifdef TRAINYARD_PROBE_CUDNN
#include "cudnn_convolution.h"

#include <cuda_runtime.h>

#include "backend_graph.h"  // CudnnError

namespace trainyard::probe {

const char* pass_name(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward: return "forward";
    case ConvolutionPass::data_gradient: return "data_gradient";
    case ConvolutionPass::weight_gradient: return "weight_gradient";
  }
  return "";
}

CudnnConvolution::CudnnConvolution(cudnnHandle_t handle, const ConvolutionLayer& l, int batch,
                                   Type type)
    : handle_(handle), exact_(type == Type::fp32) {
  const bool half = type == Type::fp16 || type == Type::bf16;
  const cudnnDataType_t data = type == Type::fp16   ? CUDNN_DATA_HALF
                               : type == Type::bf16 ? CUDNN_DATA_BFLOAT16
                                                    : CUDNN_DATA_FLOAT;
  const cudnnTensorFormat_t format = half ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  check_cudnn(cudnnCreateTensorDescriptor(&x_), "a tensor of cuDNN");
  check_cudnn(cudnnCreateTensorDescriptor(&y_), "a tensor of cuDNN");
  check_cudnn(cudnnCreateFilterDescriptor(&w_), "a filter of cuDNN");
  check_cudnn(cudnnCreateConvolutionDescriptor(&rule_), "a convolution of cuDNN");
  check_cudnn(cudnnSetTensor4dDescriptor(x_, format, data, batch, l.in_channels, l.side, l.side),
              "a tensor of cuDNN");
  check_cudnn(cudnnSetTensor4dDescriptor(y_, format, data, batch, l.out_channels, l.out_side(),
                                         l.out_side()),
              "a tensor of cuDNN");
  check_cudnn(cudnnSetFilter4dDescriptor(w_, data, format, l.out_channels, l.in_channels, l.kernel,
                                         l.kernel),
              "a filter of cuDNN");
  check_cudnn(cudnnSetConvolution2dDescriptor(rule_, l.padding(), l.padding(), l.stride, l.stride,
                                              1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              "a convolution of cuDNN");
  // FMA forbids what the default allows: fp32 operands rounded to tf32.
  const cudnnMathType_t math = half                 ? CUDNN_TENSOR_OP_MATH
                               : type == Type::tf32 ? CUDNN_DEFAULT_MATH
                                                    : CUDNN_FMA_MATH;
  check_cudnn(cudnnSetConvolutionMathType(rule_, math), "a convolution of cuDNN");
  const auto bytes = [type](int a, int b, int c, int d) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
           static_cast<std::size_t>(d) * type_bytes(type);
  };
  x_bytes_ = bytes(batch, l.in_channels, l.side, l.side);
  y_bytes_ = bytes(batch, l.out_channels, l.out_side(), l.out_side());
  w_bytes_ = bytes(l.out_channels, l.in_channels, l.kernel, l.kernel);
}

CudnnConvolution::~CudnnConvolution() {
  cudnnDestroyConvolutionDescriptor(rule_);
  cudnnDestroyFilterDescriptor(w_);
  cudnnDestroyTensorDescriptor(y_);
  cudnnDestroyTensorDescriptor(x_);
}

void CudnnConvolution::choose(ConvolutionPass pass, const ConvolutionTensors& t, void* workspace,
                              std::size_t workspace_bytes) {
  pass_ = pass;
  int found = 0;
  const auto keep = [&](cudnnStatus_t status, const auto& best) {
    // Algorithms that were tried and failed leave their error to be found by the next launch.
    cudaGetLastError();
    check_cudnn(status, pass_name(pass));
    if (found < 1) throw CudnnError(CUDNN_STATUS_NOT_SUPPORTED, pass_name(pass));
    check_cudnn(best.status, pass_name(pass));
    algorithm_ = static_cast<int>(best.algo);
    workspace_bytes_ = best.memory;
    // The kind of arithmetic belongs to the algorithm; but "default" would allow tf32 again.
    if (!exact_) check_cudnn(cudnnSetConvolutionMathType(rule_, best.mathType), pass_name(pass));
  };
  switch (pass) {
    case ConvolutionPass::forward: {
      cudnnConvolutionFwdAlgoPerf_t best{};
      keep(cudnnFindConvolutionForwardAlgorithmEx(handle_, x_, t.x, w_, t.w, rule_, y_, t.y, 1,
                                                  &found, &best, workspace, workspace_bytes),
           best);
      break;
    }
    case ConvolutionPass::data_gradient: {
      cudnnConvolutionBwdDataAlgoPerf_t best{};
      keep(cudnnFindConvolutionBackwardDataAlgorithmEx(handle_, w_, t.w, y_, t.y, rule_, x_, t.x, 1,
                                                       &found, &best, workspace, workspace_bytes),
           best);
      break;
    }
    case ConvolutionPass::weight_gradient: {
      cudnnConvolutionBwdFilterAlgoPerf_t best{};
      keep(cudnnFindConvolutionBackwardFilterAlgorithmEx(handle_, x_, t.x, y_, t.y, rule_, w_, t.w,
                                                         1, &found, &best, workspace,
                                                         workspace_bytes),
           best);
      break;
    }
  }
}

void CudnnConvolution::enqueue(const ConvolutionTensors& t, void* workspace) const {
  const float one = 1, zero = 0;
  switch (pass_) {
    case ConvolutionPass::forward:
      check_cudnn(cudnnConvolutionForward(handle_, &one, x_, t.x, w_, t.w, rule_,
                                          static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_),
                                          workspace, workspace_bytes_, &zero, y_, t.y),
                  "cudnnConvolutionForward");
      break;
    case ConvolutionPass::data_gradient:
      check_cudnn(
          cudnnConvolutionBackwardData(handle_, &one, w_, t.w, y_, t.y, rule_,
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_),
                                       workspace, workspace_bytes_, &zero, x_, t.x),
          "cudnnConvolutionBackwardData");
      break;
    case ConvolutionPass::weight_gradient:
      check_cudnn(
          cudnnConvolutionBackwardFilter(handle_, &one, x_, t.x, y_, t.y, rule_,
                                         static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_),
                                         workspace, workspace_bytes_, &zero, w_, t.w),
          "cudnnConvolutionBackwardFilter");
      break;
  }
}

}  // namespace trainyard::probe
#endif
