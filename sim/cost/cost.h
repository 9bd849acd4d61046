// Predictors of time. Two of each exist today: fitted on a machine (from a profile) and derived
// from datasheets (roofline, closed forms); a scenario's profile decides.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/base/basis.h"
#include "sim/base/collective_kind.h"
#include "sim/base/step_time.h"
#include "sim/base/units.h"
#include "sim/collective/algorithm.h"
#include "sim/collective/nccl_tuning.h"

namespace trainyard::cost {

struct Estimate {
  Seconds time{};
  Basis basis = Basis::analytic;
  std::string reach{};  // of an extrapolated one: what was left, "n is beyond the 65536 fitted"
};

class ComputeCost {
 public:
  virtual ~ComputeCost() = default;
  // Time of one kernel alone on one GPU, from its start to its end (launch from the host excluded).
  virtual Estimate time(const models::Kernel& kernel) const = 0;
};

// The ranks of a collective, as far as its time depends on them.
struct GroupShape {
  int ranks = 1;
  int servers = 1;
  int ranks_per_server = 1;        // the most in any server
  BytesPerSecond intra_bandwidth;  // ring bus bandwidth inside a server
  BytesPerSecond inter_bandwidth;  // this group's share of its server's NICs, per direction
  Duration intra_latency{}, inter_latency{};  // of one hop
  // What steps between servers cost beside hop and bytes, in rings, trees and all-to-alls; `start`:
  // what starting there costs, in place of the law inside.
  std::span<const StepTime> steps{}, tree_steps{}, exchange_steps{};
  std::optional<Duration> start{};
  double exchange_efficiency = 1;  // share of inter_bandwidth that an all-to-all reaches
  // Inside a server: the rings over which a collective's bytes are spread, and the share of their
  // bandwidth that an all-to-all reaches: 1 but on a torus.
  int inside_rings = 1;
  double inside_exchange = 1;
  bool by_kernels = true;  // communication holds multiprocessors; false: links move bytes alone
  // What NCCL's tuning knows of the servers; nothing of GPUs that have no NCCL.
  std::optional<nccl::Machine> nccl{};
  BytesPerSecond nic{};  // what a message through one NIC reaches; 0: a rank's part of them
  // Of the cluster's kinds of GPUs: the one whose laws hold, and a bit for each that is among them.
  int gpu_kind = 0;
  std::uint64_t gpu_kinds = 1;
};

collective::Group group_of(const GroupShape& shape);

// What NCCL may take for a collective of the group, the one that it takes first; with an algorithm
// that was chosen the ones of that. Empty where it has no say: GPUs without it, sends and receives,
// algorithms of others. Requires: two ranks or more.
std::vector<nccl::Choice> nccl_choices(CollectiveKind kind,
                                       const collective::AlgorithmEntry* algorithm, Bytes bytes,
                                       const GroupShape& shape);

// time(S) = latency + wire_bytes / bandwidth, with the bytes that cross the busiest edge of the
// ring (of a reduction inside the switch: a rank's link to it; of a point-to-point message: the
// message; of an algorithm that was chosen: what the busiest rank sends). Together they are exactly
// the law at this size: `latency` holds a + c sqrt(S) of docs/cost-messages.md, `bandwidth` its
// linear part.
struct MessageTerms {
  Seconds latency{};
  Bytes wire_bytes;
  BytesPerSecond bandwidth;
  int channels = 0;  // multiprocessors that the communication kernel occupies
  Basis basis = Basis::analytic;
  std::string reach{};  // as of an Estimate

  // Seconds where no other message is under way.
  double alone() const {
    const auto bytes = static_cast<double>(wire_bytes.count());
    return latency.count() + (bytes > 0 ? bytes / bandwidth.count() : 0);
  }
};

class MessageCost {
 public:
  virtual ~MessageCost() = default;
  // By an algorithm that was chosen; without one, by whichever the law is of. A protocol that was
  // chosen takes longer by what NCCL's tuning expects of it beside its own choice.
  // Requires: as below, an algorithm that supports the kind for group_of(shape), and a protocol
  // among its nccl_choices.
  virtual MessageTerms collective(CollectiveKind kind, const collective::Choice& choice,
                                  Bytes bytes, const GroupShape& shape) const;
  // Requires: bytes >= 0, shape.ranks >= 1. One rank: zero time, zero bytes.
  virtual MessageTerms collective(CollectiveKind kind, Bytes bytes,
                                  const GroupShape& shape) const = 0;
  // A message between two ranks; `shape` describes the pair.
  virtual MessageTerms point_to_point(Bytes bytes, const GroupShape& shape) const = 0;

 private:
  MessageTerms by_algorithm(CollectiveKind kind, const collective::AlgorithmEntry& algorithm,
                            Bytes bytes, const GroupShape& shape) const;
  // What the library and the kernels add to the law of an algorithm.
  virtual void add_start(const GroupShape& /*shape*/, MessageTerms& /*terms*/) const {}
};

// Each group by the cost of its GroupShape::gpu_kind. Requires: one for each kind of the cluster.
std::unique_ptr<MessageCost> message_cost_by_kind(std::vector<std::unique_ptr<MessageCost>> costs);

}  // namespace trainyard::cost
