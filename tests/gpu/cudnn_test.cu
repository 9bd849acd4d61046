// What the probes ask of cuDNN is what they say: its results against references of our own.
#include "calibrate/probe/vendor/cudnn_attention.h"
#include "tests/gpu/device.h"
#include "tests/gpu/device_array.h"
// The order matters: the checks need the array of the first.
#include "tests/calibrate/attention_checks.h"

#ifdef TRAINYARD_PROBE_CUDNN
#include "calibrate/probe/vendor/backend_graph.h"
#include "calibrate/probe/vendor/cudnn_convolution.h"

namespace trainyard {
namespace {

using reference::Values;

TEST_CASE("cuDNN's attention is attention, forward and backward, with groups, causal and full") {
  probe::test::the_device();
  const std::string absent = probe::cudnn_attention_absent();
  if (!absent.empty()) throw probe::test::Skip{absent};
  using T = __nv_bfloat16;
  const probe::Stream stream;
  int planned = 0;
  for (const bool causal : {false, true}) {
    for (const int kv_heads : {4, 2}) {
      CAPTURE(causal);
      CAPTURE(kv_heads);
      const probe::AttentionProblem p{2, 4, kv_heads, 256, 64, causal};
      const reference::AttentionShape s{2, 4, kv_heads, 256, 256, 64, causal};
      const std::size_t queries = p.query_elements(), keys = p.key_elements(), rows = queries / 64;
      const Values q = inputs<T>(queries, 1), k = inputs<T>(keys, 2), v = inputs<T>(keys, 3);
      const Values d_o = inputs<T>(queries, 4);
      const Array<T> at_q(q), at_k(k), at_v(v), at_do(d_o), o(queries), dq(queries), dk(keys),
          dv(keys);
      const Array<float> lse(rows);
      const probe::AttentionTensors tensors{at_q.data(), at_k.data(), at_v.data(),
                                            o.data(),    lse.data(),  at_do.data(),
                                            dq.data(),   dk.data(),   dv.data()};
      const auto run = [&](bool backward) {
        std::string refused;
        const auto plan = probe::cudnn_attention(p, probe::Type::bf16, backward, stream, refused);
        if (plan == nullptr) {
          MESSAGE("cuDNN has no engine: " << refused);
          return false;
        }
        const probe::DeviceBuffer workspace(plan->workspace_bytes());
        plan->enqueue(tensors, workspace.data());
        stream.wait();
        ++planned;
        return true;
      };
      if (!run(false)) continue;
      const auto forward = reference::attention(q, k, v, s, 0.125);
      check_close<float>(lse.values(), forward.lse, 1e-3);
      check_close<T>(o.values(), forward.o, output_slack<T>());
      if (!run(true)) continue;
      const auto backward = reference::attention_backward(q, k, v, d_o, s, 0.125);
      check_close<T>(dv.values(), backward.dv, gradient_slack<T>(backward.dv));
      check_close<T>(dk.values(), backward.dk, gradient_slack<T>(backward.dk));
      check_close<T>(dq.values(), backward.dq, gradient_slack<T>(backward.dq));
    }
  }
  if (planned == 0) throw probe::test::Skip{"cuDNN has no engine for attention on this device"};
}

// One image of 8 x 8, 8 to 16 channels, 3 x 3, every 2 pixels, by the definition. NHWC as
// [y][x][c].
struct Direct {
  static constexpr int kIn = 8, kOut = 16, kSide = 8, kHalf = 4;
  template <typename Use>
  static void each(Use use) {  // use(x index, w index, y index)
    for (int out = 0; out < kHalf * kHalf; ++out)
      for (int o = 0; o < kOut; ++o)
        for (int tap = 0; tap < 9; ++tap)
          for (int i = 0; i < kIn; ++i) {
            const int row = out / kHalf * 2 + tap / 3 - 1, column = out % kHalf * 2 + tap % 3 - 1;
            if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
            use((row * kSide + column) * kIn + i, (o * 9 + tap) * kIn + i, out * kOut + o);
          }
  }
};

TEST_CASE("cuDNN's convolution is the one that the sample says, in all three passes") {
  probe::test::the_device();
  using T = __half;
  const probe::Stream stream;
  cudnnHandle_t handle = nullptr;
  probe::check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  probe::check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
  const probe::ConvolutionLayer layer{"test", Direct::kIn, Direct::kOut, Direct::kSide, 3, 2};
  CHECK(layer.out_side() == Direct::kHalf);
  const std::size_t x_count = 8 * 8 * 8, w_count = 16 * 9 * 8, y_count = 4 * 4 * 16;
  const Values x = inputs<T>(x_count, 1), w = inputs<T>(w_count, 2), y = inputs<T>(y_count, 3);
  for (const auto pass : {probe::ConvolutionPass::forward, probe::ConvolutionPass::data_gradient,
                          probe::ConvolutionPass::weight_gradient}) {
    CAPTURE(probe::pass_name(pass));
    const Array<T> at_x(x), at_w(w), at_y(y);
    const probe::ConvolutionTensors tensors{at_x.data(), at_w.data(), at_y.data()};
    const probe::DeviceBuffer workspace(std::size_t{256} << 20);
    probe::CudnnConvolution convolution(handle, layer, 1, probe::Type::fp16);
    CHECK(convolution.x_bytes() == 2 * x_count);
    CHECK(convolution.w_bytes() == 2 * w_count);
    CHECK(convolution.y_bytes() == 2 * y_count);
    convolution.choose(pass, tensors, workspace.data(), workspace.bytes());
    convolution.enqueue(tensors, workspace.data());
    stream.wait();
    Values to_x(x_count), to_w(w_count), to_y(y_count);
    Direct::each([&](int a, int b, int c) {
      to_x[a] += w[b] * y[c];
      to_w[b] += x[a] * y[c];
      to_y[c] += x[a] * w[b];
    });
    if (pass == probe::ConvolutionPass::forward) check_close<T>(at_y.values(), to_y, 1e-2);
    if (pass == probe::ConvolutionPass::data_gradient) check_close<T>(at_x.values(), to_x, 1e-2);
    if (pass == probe::ConvolutionPass::weight_gradient) check_close<T>(at_w.values(), to_w, 1e-2);
  }
  cudnnDestroy(handle);
}

}  // namespace
}  // namespace trainyard
#endif
