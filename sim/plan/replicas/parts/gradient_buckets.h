// Groups gradients into the buffers that data-parallel ranks reduce together, in the order in which
// backward produces them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::plan {

// What becomes of the tensor with which a bucket reaches its size. No tensor is cut in two.
//   past:   it is the bucket's last. Source: PyTorch, compute_bucket_assignment_by_size
//           (torch/csrc/distributed/c10d/reducer.cpp); Megatron-LM, param_and_grad_buffer.py.
//   within: a tensor that would take the bucket past its size is the next one's first. Source:
//           DeepSpeed, reduce_independent_p_g_buckets_and_remove_grads (zero/stage_1_and_2.py,
//           and zero/stage3.py alike), which notices only then that a bucket is just full.
enum class BucketFill : std::uint8_t { past, within };

// Full buckets leave as soon as they are full; what is left leaves with flush().
class GradientBuckets {
 public:
  // Requires: both sizes positive.
  GradientBuckets(Bytes first_size, Bytes size, BucketFill fill)
      : size_(size), next_size_(first_size), fill_(fill) {}
  // Of so many tensors each, in this order and then from the first again.
  explicit GradientBuckets(std::vector<int> tensors) : counts_(std::move(tensors)) {}

  // Buckets that the gradients of one tensor complete.
  std::vector<Bytes> add(Bytes tensor) {
    if (!counts_.empty()) return add_counted(tensor);
    std::vector<Bytes> full;
    if (fill_ == BucketFill::within && waiting_ + tensor > next_size_) full = flush();
    waiting_ = waiting_ + tensor;
    if (waiting_ >= next_size_) {
      full.push_back(waiting_);
      waiting_ = Bytes(0);
    }
    if (!full.empty()) next_size_ = size_;
    return full;
  }

  std::vector<Bytes> flush() {
    std::vector<Bytes> rest;
    if (waiting_ > Bytes(0)) rest.push_back(waiting_);
    waiting_ = Bytes(0);
    return rest;
  }

 private:
  std::vector<Bytes> add_counted(Bytes tensor) {
    waiting_ = waiting_ + tensor;
    if (++in_bucket_ < counts_[bucket_]) return {};
    in_bucket_ = 0;
    bucket_ = (bucket_ + 1) % counts_.size();
    return flush();
  }

  Bytes size_, next_size_, waiting_;
  BucketFill fill_ = BucketFill::past;
  std::vector<int> counts_;  // empty: by size
  std::size_t bucket_ = 0;   // of those, the open one
  int in_bucket_ = 0;
};

}  // namespace trainyard::plan
