// Memory of the emulated device, with the members that tests/gpu/device_array.h has too: the checks
// of kernel_checks.h are written once for both.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tests/calibrate/emulated_cuda.h"
#include "tests/support/rooms.h"

namespace trainyard {

inline constexpr bool kEmulated = true;

template <typename T>
class Array {
 public:
  // Not a number until a kernel writes it.
  explicit Array(std::size_t count) : data_(new T[count]), count_(count) {
    std::memset(static_cast<void*>(data_.get()), 0xff, count * sizeof(T));
  }
  explicit Array(const std::vector<double>& values) : Array(values.size()) {
    for (std::size_t i = 0; i < count_; ++i) {
      if constexpr (std::is_integral_v<T>) {
        data_[i] = static_cast<T>(values[i]);
      } else {
        data_[i] = probe::from_float<T>(static_cast<float>(values[i]));
      }
    }
  }
  T* data() const { return data_.get(); }
  std::vector<double> values() const {
    std::vector<double> result(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if constexpr (std::is_integral_v<T>) {
        result[i] = data_[i];
      } else {
        result[i] = probe::to_float(data_[i]);
      }
    }
    return result;
  }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t count_;
};

}  // namespace trainyard
