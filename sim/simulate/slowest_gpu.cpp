#include "sim/simulate/slowest_gpu.h"

#include <array>
#include <cstddef>

#include "sim/base/check.h"

namespace trainyard::simulate {

double expected_largest(int count) {
  constexpr std::array<double, 21> kOfPowers = {
      0.0,    0.5642, 1.0294, 1.4236, 1.766,  2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482,
      3.4418, 3.6261, 3.8023, 3.9714, 4.1341, 4.2911, 4.443,  4.5903, 4.7332, 4.8723};
  TRAINYARD_CHECK(count >= 1 && count <= 1 << 20, "the largest of {} numbers", count);
  std::size_t power = 0;
  while (2 << power <= count)
    ++power;
  const int below = 1 << power;
  if (count == below) return kOfPowers[power];
  const double part = static_cast<double>(count - below) / below;
  return kOfPowers[power] + part * (kOfPowers[power + 1] - kOfPowers[power]);
}

}  // namespace trainyard::simulate
