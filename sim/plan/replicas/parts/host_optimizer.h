// Writes what the host does when it keeps and updates optimizer states: gradients on their way
// down, the update tile by tile, parameters on their way up. Psi parameters of one rank, 16-bit,
// Adam:
//
//   down  2 Psi/n with gradients that n ranks divide, in the backward pass as they are reduced
//   host  28 Psi/n bytes read and written: gradients, three fp32 states twice, 16-bit parameters
//   up    2 Psi/n after each tile's update; with parameters offloaded 2 Psi/n before each gather
//   NVMe  12 Psi/n read before and written after, three tiles in flight
//
// Source: Ren et al., ZeRO-Offload, ATC 2021, sections 3 and 5; Rajbhandari et al., ZeRO-Infinity,
// SC 2021, sections 5 and 6; PyTorch, torch.distributed.fsdp CPUOffloadPolicy.
#pragma once

#include <cstdint>
#include <string>

#include "sim/plan/replicas/replica_context.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

class HostOptimizer {
 public:
  // `context` must outlive it.
  explicit HostOptimizer(ReplicaContext& context) : context_(context) {}

  bool used() const;
  // Whole gradients stay where they are accumulated; shards go as soon as they are reduced.
  bool gradients_leave() const;
  // Whether gradients of later micro-batches are added on the host.
  bool accumulates() const;

  // Takes from the states of a rank, and its frozen weights, what the host or NVMe holds.
  void move_states(const StageParameters& parameters, StateBytes& states, Bytes& frozen);

  // The op written last takes `own` bytes of gradients that will leave.
  void take_leaving_gradients(Bytes own);
  // A reduced bucket or shard goes to the host and, behind the first micro-batch, is added to what
  // is there: each byte is read twice and written once. `kind` and `owner`: as what the GPU has had
  // it.
  void copy_gradients(Bytes own, StreamSet waits, const std::string& name, MemoryKind kind,
                      const char* owner);

  // The squares of the gradients are summed where those are.
  void sum_squares(Bytes gradients);
  // Scales the gradients by their norm, to which other ranks have added if `waits_for_ranks`.
  void scale(Bytes gradients, bool waits_for_ranks);
  // The optimizer step, tile by tile.
  void update(const StageParameters& parameters);

 private:
  // What moves in an update of the whole rank.
  struct Traffic {
    Bytes touched, read, written, up;  // in host memory; from and to NVMe; to the GPU
  };
  Traffic traffic(const StageParameters& parameters) const;
  // Parameters that this rank's optimizer updates.
  std::int64_t updated_parameters(const StageParameters& parameters) const;
  std::int64_t tiles(const StageParameters& parameters) const;
  // Bytes that an update reads from NVMe: states, and parameters of which they hold no copy.
  Bytes nvme_read(Bytes states, const StageParameters& parameters) const;

  ReplicaContext& context_;
};

// Bytes of the gradients that the optimizer of this rank reads.
Bytes updated_gradients(const ReplicaContext& context, const StageParameters& parameters);

}  // namespace trainyard::plan
