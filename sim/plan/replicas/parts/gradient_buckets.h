// Groups gradients into the buffers that data-parallel ranks reduce together, in the order in which
// backward produces them.
#pragma once

#include <vector>

#include "sim/base/units.h"

namespace trainyard::plan {

// Full buckets leave as soon as they are full; what is left leaves with flush().
// Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3 (the first bucket is smaller so
// that communication starts early).
class GradientBuckets {
 public:
  // Requires: both sizes positive.
  GradientBuckets(Bytes first_size, Bytes size) : size_(size), next_size_(first_size) {}

  // Buckets that these gradients complete. A gradient may be cut by a bucket's end.
  std::vector<Bytes> add(Bytes gradients) {
    std::vector<Bytes> full;
    waiting_ = waiting_ + gradients;
    while (waiting_ >= next_size_) {
      full.push_back(next_size_);
      waiting_ = waiting_ - next_size_;
      next_size_ = size_;
    }
    return full;
  }

  std::vector<Bytes> flush() {
    std::vector<Bytes> rest;
    if (waiting_ > Bytes(0)) rest.push_back(waiting_);
    waiting_ = Bytes(0);
    return rest;
  }

 private:
  Bytes size_, next_size_, waiting_;
};

}  // namespace trainyard::plan
