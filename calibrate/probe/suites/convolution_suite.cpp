// Convolutions by cuDNN over the layers of ResNet-50, VGG-16 and U-Net, all three passes. Operands
// are rotated past the L2 cache and filled anew for each pass, because one pass writes what another
// reads.
#include "suite.h"

#ifdef TRAINYARD_PROBE_CUDNN
#include <algorithm>

#include "backend_graph.h"
#include "cudnn_convolution.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

class Handle {
 public:
  explicit Handle(cudaStream_t stream) {
    check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
    check_cudnn(cudnnSetStream(handle_, stream), "cudnnSetStream");
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cudnnDestroy(handle_); }
  operator cudnnHandle_t() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

class ConvolutionRun {
 public:
  explicit ConvolutionRun(Context& context)
      : context_(context),
        handle_(stream_),
        stopwatch_(stream_),
        workspace_(std::min(std::size_t{2} << 30, free_memory() / 4)),
        arena_(std::min(std::size_t{16} << 30, free_memory() / 10 * 8)) {}

  void run() {
    // A budget that ends early has all layers of the first rounds. Each batch and each type comes
    // early once; two types of 16 bits run at the same speed, so fp16 can wait.
    struct Round {
      int batch;
      Type type;
    };
    constexpr Round kRounds[] = {
        {64, Type::bf16},  {64, Type::tf32},  {256, Type::bf16}, {64, Type::fp32},
        {32, Type::bf16},  {64, Type::fp16},  {256, Type::tf32}, {128, Type::bf16},
        {32, Type::tf32},  {256, Type::fp32}, {256, Type::fp16}, {32, Type::fp32},
        {128, Type::tf32}, {32, Type::fp16},  {128, Type::fp32}, {128, Type::fp16}};
    for (const Round& round : kRounds) {
      if (context_.quick && (round.batch != 64 || round.type == Type::fp32)) continue;
      for (const ConvolutionLayer& layer : convolution_layers())
        measure_layer(layer, round.batch, round.type);
    }
    if (refused_ > 0) {
      context_.note("convolution: cuDNN refused " + std::to_string(refused_) +
                    " cases, the last: " + refusal_);
    }
    if (too_large_ > 0) {
      context_.note("convolution: " + std::to_string(too_large_) +
                    " cases left out, whose tensors do not fit into " +
                    std::to_string(arena_.bytes() >> 20) + " MiB");
    }
  }

 private:
  void measure_layer(const ConvolutionLayer& layer, int batch, Type type) {
    for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::data_gradient,
                                       ConvolutionPass::weight_gradient}) {
      if (!context_.go_on()) return;
      // The gradient of the image itself is of no use to anyone.
      if (layer.in_channels == 3 && pass == ConvolutionPass::data_gradient) continue;
      try {
        measure_pass(layer, batch, type, pass);
      } catch (const CudnnError& error) {
        ++refused_;
        refusal_ = error.what();
        cudaGetLastError();
      }
    }
  }

  void measure_pass(const ConvolutionLayer& layer, int batch, Type type, ConvolutionPass pass) {
    CudnnConvolution convolution(handle_, layer, batch, type);
    const std::size_t w = aligned(convolution.x_bytes());
    const std::size_t y = w + aligned(convolution.w_bytes());
    const std::size_t each = y + aligned(convolution.y_bytes());
    if (each > arena_.bytes()) {
      ++too_large_;
      return;
    }
    const Rotation rotation = rotate(each, context_.device().l2_bytes, arena_.bytes());
    fill_random(type, arena_.data(), rotation.bytes() / type_bytes(type), 1, stream_);
    const auto tensors = [&](long long call) -> ConvolutionTensors {
      std::byte* const copy = arena_.data() + rotation.offset(call);
      return {copy, copy + w, copy + y};
    };
    convolution.choose(pass, tensors(0), workspace_.data(), workspace_.bytes());
    TimingOptions options;
    options.copies = rotation.copies;
    options.limit_us = context_.quick ? 10'000 : 40'000;
    const Timing timing = stopwatch_.measure(
        [&](long long call) { convolution.enqueue(tensors(call), workspace_.data()); }, options);
    write(layer, batch, type, pass, timing);
  }

  void write(const ConvolutionLayer& layer, int batch, Type type, ConvolutionPass pass,
             const Timing& timing) {
    context_.show(std::string("convolution ") + layer.network + " " + pass_name(pass) + " " +
                  type_name(type) + " " + std::to_string(batch) + " x " +
                  std::to_string(layer.in_channels) + " x " + std::to_string(layer.side));
    context_.samples.write(Sample("convolution")
                               .text("pass", pass_name(pass))
                               .text("dtype", type_name(type))
                               .number("batch", batch)
                               .number("in_channels", layer.in_channels)
                               .number("out_channels", layer.out_channels)
                               .number("in_height", layer.side)
                               .number("in_width", layer.side)
                               .number("out_height", layer.out_side())
                               .number("out_width", layer.out_side())
                               .number("kernel_height", layer.kernel)
                               .number("kernel_width", layer.kernel)
                               .number("groups", 1)
                               .number("stride", layer.stride)
                               .text("network", layer.network)
                               .timing(timing));
  }

  Context& context_;
  Stream stream_;
  Handle handle_;
  Stopwatch stopwatch_;
  DeviceBuffer workspace_, arena_;
  int refused_ = 0, too_large_ = 0;
  std::string refusal_;
};

}  // namespace

void run_convolution(Context& context) {
  try {
    ConvolutionRun(context).run();
  } catch (const CudnnError& error) {
    context.note(std::string("convolution: left out: ") + error.what());
  }
}

}  // namespace trainyard::probe

#else

namespace trainyard::probe {

void run_convolution(Context& context) {
  context.note("convolution: left out: the program was built without cuDNN");
}

}  // namespace trainyard::probe

#endif
