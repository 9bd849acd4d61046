// The parts of which strategies of data parallelism are made. A part that only one strategy has
// stands in that strategy's file.
#pragma once

#include "sim/base/collective_kind.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/replicas/parts/gradient_buckets.h"

namespace trainyard::plan {

struct GatherOptions {
  int prefetch = 0;     // units gathered ahead
  bool limited = true;  // a unit's gather waits for the computation `prefetch` units before it
  bool keeps_layers = false;  // between forward and backward
  bool keeps_ends = false;    // embedding and logits are one unit, kept; so is the last layer
};

// Parameters are gathered ahead of the layers that need them, in the passes that
// DataParallelStrategy::gathering says.
PartMaker gather_in_passes(const GatherOptions& options);

struct BucketOptions {
  CollectiveKind kind = CollectiveKind::all_reduce;
  BucketFill fill = BucketFill::past;
  bool small_first = false;  // the first has a size of its own, so that communication starts early
  // Buckets are memory of their own, into which gradients are copied, and back when reduced.
  bool copies = false;
};

// Gradients are reduced in buckets of ParallelPlan::bucket_size as backward passes produce them, or
// in the step.
PartMaker reduce_in_buckets(const BucketOptions& options);

// The same with buckets that are compressed: ParallelPlan::data_parallel.compression.
PartMaker exchange_compressed();

// Clips the gradients, updates the parameters of this rank (on the host, if it keeps the states)
// and gives back the gradients that do not stay.
PartMaker optimizer_step();

// Updated shards of parameters are gathered in buckets when the optimizer is done.
PartMaker gather_updated();

// Optimizer states are divided among `ranks`, whatever the framework fills its buckets with.
DataParallelStrategy sharded_states(const recipe::DataParallelOptions& options, int ranks,
                                    BucketFill fill);

}  // namespace trainyard::plan
