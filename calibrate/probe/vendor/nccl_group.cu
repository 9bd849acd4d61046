#include "nccl_group.h"

#ifdef TRAINYARD_PROBE_NCCL

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

namespace trainyard::probe {
namespace {

void check_nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess)
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code));
}
#define PROBE_NCCL(call) check_nccl((call), #call)

constexpr int kMostOperations = 100;  // enqueued at once

}  // namespace

NcclGroup::NcclGroup(const std::vector<int>& devices, std::int64_t most_elements)
    : devices_(devices) {
  const auto count = static_cast<std::size_t>(most_elements);
  for (const int device : devices_) {
    const OnDevice current(device);
    input_.emplace_back(count * sizeof(float));
    output_.emplace_back(count * sizeof(float));
    streams_.emplace_back();
    fill_random(Type::fp32, input_.back().data(), count, static_cast<std::uint64_t>(device) + 1,
                streams_.back());
  }
  wait();
  communicators_.resize(devices_.size());
  PROBE_NCCL(
      ncclCommInitAll(communicators_.data(), static_cast<int>(devices_.size()), devices_.data()));
}

NcclGroup::~NcclGroup() {
  for (std::size_t rank = 0; rank < streams_.size(); ++rank)
    cudaStreamSynchronize(streams_[rank]);
  for (const ncclComm_t communicator : communicators_)
    if (communicator != nullptr) ncclCommDestroy(communicator);
}

void NcclGroup::wait() {
  for (const Stream& stream : streams_)
    stream.wait();
}

// Inside of a group, with the rank's device current.
void NcclGroup::enqueue_rank(std::size_t rank, Collective kind, std::size_t elements) {
  const auto ranks = static_cast<std::size_t>(devices_.size());
  const std::size_t share = elements / ranks;
  const auto* const in = input_[rank].as<float>();
  auto* const out = output_[rank].as<float>();
  const ncclComm_t comm = communicators_[rank];
  const cudaStream_t stream = streams_[rank];
  switch (kind) {
    case Collective::all_reduce:
      return PROBE_NCCL(ncclAllReduce(in, out, elements, ncclFloat, ncclSum, comm, stream));
    case Collective::all_gather:
      return PROBE_NCCL(ncclAllGather(in, out, share, ncclFloat, comm, stream));
    case Collective::reduce_scatter:
      return PROBE_NCCL(ncclReduceScatter(in, out, share, ncclFloat, ncclSum, comm, stream));
    case Collective::broadcast:
      return PROBE_NCCL(ncclBroadcast(in, out, elements, ncclFloat, 0, comm, stream));
    case Collective::all_to_all:
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const int other = static_cast<int>(peer);
        PROBE_NCCL(ncclSend(in + peer * share, share, ncclFloat, other, comm, stream));
        PROBE_NCCL(ncclRecv(out + peer * share, share, ncclFloat, other, comm, stream));
      }
      return;
    case Collective::send_recv:
      const int next = static_cast<int>((rank + 1) % ranks);
      const int previous = static_cast<int>((rank + ranks - 1) % ranks);
      PROBE_NCCL(ncclSend(in, elements, ncclFloat, next, comm, stream));
      PROBE_NCCL(ncclRecv(out, elements, ncclFloat, previous, comm, stream));
      return;
  }
}

void NcclGroup::enqueue(Collective kind, std::int64_t elements) {
  PROBE_NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    const OnDevice current(devices_[rank]);
    enqueue_rank(rank, kind, static_cast<std::size_t>(elements));
  }
  PROBE_NCCL(ncclGroupEnd());
}

// Microseconds of one operation.
double NcclGroup::interval(Collective kind, std::int64_t elements, int operations) {
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < operations; ++i)
    enqueue(kind, elements);
  wait();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / operations;
}

Timing NcclGroup::measure(Collective kind, std::int64_t elements, double interval_us, int repeats) {
  interval(kind, elements, 2);  // connects the ranks for this algorithm
  const double estimate = interval(kind, elements, 4);
  const int operations = static_cast<int>(
      std::clamp(interval_us / std::max(estimate, 0.1), 2.0, double{kMostOperations}));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i)
    times.push_back(interval(kind, elements, operations));
  return summarize(std::move(times));
}

}  // namespace trainyard::probe

#endif  // TRAINYARD_PROBE_NCCL
