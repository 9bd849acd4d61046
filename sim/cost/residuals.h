// What measured shapes say of the shapes near them. Private to the room. Source: docs/cost-gemm.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/cost/profile.h"

namespace trainyard::cost {

// A factor on the time of a law, and whether this very shape was measured.
struct Residual {
  double factor = 1;
  bool exact = false;
};

// The table of one GEMM law. At a measured shape its factor; elsewhere the mean of the nearest
// rows, weighted by inverse distance in the logarithms of m, n, k and batch, fading to 1 with the
// distance of the nearest one. Continuous in the sizes: a row's weight is zero when it joins or
// leaves the nearest ones. Single products and batches of them are separate tables, as the law
// itself has a step there.
class GemmResiduals {
 public:
  explicit GemmResiduals(const std::vector<GemmResidual>& rows);

  // O(rows): about 10 us for 2,000 rows.
  Residual at(const models::Gemm& gemm) const;

 private:
  struct Row {
    std::array<double, 4> at{};  // log2 of m, n, k, batch
    double factor = 1;
  };
  struct Near {
    double squared = 0;  // distance
    double factor = 1;
  };
  static Residual between(const std::vector<Near>& near);

  std::vector<Row> single_, batched_;
};

// The factor of a convolution whose shape, batch aside, is in the table: between measured batches
// linear in the logarithm of the batch, beyond them that of the nearest. Nothing if the shape is
// unknown.
struct BatchResidual {
  double factor = 1;
  bool exact = false, outside = false;
};
std::optional<BatchResidual> find_residual(const std::vector<ConvolutionResidual>& rows,
                                           const models::Convolution& convolution);

}  // namespace trainyard::cost
