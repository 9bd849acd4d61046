// Activations that wait for their backward pass in the memory of the host.
//
// After a layer's forward its activations are copied to the host, and their memory on the GPU is
// given back when the copy ends; before its backward they are fetched, which takes memory when the
// fetch begins. With n layers of prefetch at most n + 1 layers are on the GPU for one pass, in work
// or on their way: a layer's forward begins when the copy of the layer n + 1 before it has ended,
// a fetch when the backward n + 1 before the one that needs it has. The first fetch of a backward
// pass is begun under the last layer of the pass before, beside whose own layers it stands.
//
// Source: PyTorch, torch.autograd.graph.save_on_cpu; Transformer Engine, get_cpu_offload_context
// (double buffering); Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5.1.2.
#pragma once

#include <optional>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/split/stage_split.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/offload_options.h"

namespace trainyard::plan {

class ActivationOffload {
 public:
  // All references must outlive it.
  ActivationOffload(ProgramBuilder& builder, const StepPlan& step, const models::NetworkWork& work,
                    const recipe::OffloadOptions& options)
      : builder_(builder), step_(step), work_(work), options_(options) {}

  bool used() const { return options_.activations; }
  // Whether a pass fetches for the one after it.
  bool fetches_ahead() const { return used() && options_.prefetch_layers > 0; }

  // Around the work of a whole forward or backward pass: begin after begin_block(), then before()
  // and after() each place in the order of the pass. `next`: the range of the backward pass that
  // follows and whose own forward is not this one; `fetched`: the pass before has begun this one's
  // first fetch.
  void begin_forward(ChainRange range, const std::optional<ChainRange>& next);
  void begin_backward(ChainRange range, bool fetched, const std::optional<ChainRange>& next);
  void before(int place);
  void after(int place);

  // Bytes that one forward pass over the range sends to the host, and its backward fetches.
  Bytes moved(ChainRange range) const;

 private:
  std::vector<int> places(ChainRange range) const;
  bool leaves(int place) const;
  void copy_out(int place);
  void fetch(int place, StreamSet waits);
  void fetch_next();
  Bytes bytes(int place) const;

  ProgramBuilder& builder_;
  const StepPlan& step_;
  const models::NetworkWork& work_;
  const recipe::OffloadOptions& options_;

  // State of the open block.
  bool forward_ = true;
  int last_place_ = -1;      // in the order of the pass
  std::vector<int> places_;  // whose activations are elsewhere, in forward order
  std::optional<ChainRange> next_;
  bool copied_ = false;
};

}  // namespace trainyard::plan
