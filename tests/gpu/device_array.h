// Memory of the device, with the members that tests/calibrate/emulated_array.h has too.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>
#include <vector>

#include "calibrate/probe/host/device.h"

namespace trainyard {

inline constexpr bool kEmulated = false;

inline double host_value(float x) {
  return x;
}
inline double host_value(__half x) {
  return __half2float(x);
}
inline double host_value(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
inline void assign(float& to, double x) {
  to = static_cast<float>(x);
}
inline void assign(__half& to, double x) {
  to = __float2half_rn(static_cast<float>(x));
}
inline void assign(__nv_bfloat16& to, double x) {
  to = __float2bfloat16_rn(static_cast<float>(x));
}

template <typename T>
class Array {
 public:
  // Not a number until a kernel writes it.
  explicit Array(std::size_t count) : buffer_(count * sizeof(T)), count_(count) {
    PROBE_CUDA(cudaMemset(buffer_.data(), 0xff, count * sizeof(T)));
    settle();
  }
  explicit Array(const std::vector<double>& values) : Array(values.size()) {
    std::vector<T> host(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if constexpr (std::is_integral_v<T>) {
        host[i] = static_cast<T>(values[i]);
      } else {
        assign(host[i], values[i]);
      }
    }
    PROBE_CUDA(cudaMemcpy(buffer_.data(), host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    settle();
  }
  T* data() const { return buffer_.template as<T>(); }
  // Waits for the kernels, and throws what went wrong with them.
  std::vector<double> values() const {
    PROBE_CUDA(cudaGetLastError());
    PROBE_CUDA(cudaDeviceSynchronize());
    std::vector<T> host(count_);
    PROBE_CUDA(cudaMemcpy(host.data(), buffer_.data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<double> result(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if constexpr (std::is_integral_v<T>) {
        result[i] = static_cast<double>(host[i]);
      } else {
        result[i] = host_value(host[i]);
      }
    }
    return result;
  }

 private:
  // The default stream's work is not ordered before that of the non-blocking streams of the probes.
  static void settle() { PROBE_CUDA(cudaDeviceSynchronize()); }

  probe::DeviceBuffer buffer_;
  std::size_t count_;
};

}  // namespace trainyard
