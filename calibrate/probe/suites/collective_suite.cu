// Collectives between the devices of this machine: by NCCL if the program is linked with it, and by
// ring kernels of our own. On a machine with one device only the latter's own cost can be seen.
#include <algorithm>
#include <exception>
#include <functional>

#include "nccl_group.h"
#include "ring.h"
#include "suite.h"

namespace trainyard::probe {
namespace {

// What matters most comes first: the time may be over early.
constexpr Collective kOrder[] = {Collective::all_reduce, Collective::reduce_scatter,
                                 Collective::all_gather, Collective::all_to_all,
                                 Collective::send_recv,  Collective::broadcast};
constexpr std::int64_t kLeastElements = 256;                   // 1 KiB
constexpr std::int64_t kMostElements = std::int64_t{1} << 28;  // 1 GiB
constexpr std::int64_t kMostVirtualElements = std::int64_t{1}
                                              << 22;  // 16 MiB: only steps are measured

struct Group {
  std::vector<int> devices;  // CUDA ordinals
  const char* backend;
};

// All devices, then 2, 4, 8, ... of them.
std::vector<std::size_t> group_sizes(std::size_t devices) {
  std::vector<std::size_t> sizes = {devices};
  for (std::size_t size = 2; size < devices; size *= 2)
    sizes.push_back(size);
  return sizes;
}

std::vector<int> first_devices(const Context& context, std::size_t count) {
  std::vector<int> devices;
  for (std::size_t i = 0; i < count; ++i)
    devices.push_back(context.devices[i].index);
  return devices;
}

// Elements such that input and output take a quarter of what the fullest device has left.
std::int64_t most_elements(const Group& group, std::int64_t wanted, std::size_t ranks_per_device) {
  for (const int device : group.devices) {
    const OnDevice current(device);
    const std::size_t bytes = free_memory() / 4 / (2 * ranks_per_device);
    wanted = std::min(wanted, static_cast<std::int64_t>(bytes / sizeof(float)));
  }
  std::int64_t most = kLeastElements;
  while (most * 2 <= wanted)
    most *= 2;
  return most;
}

// What the collective moves of a buffer: shares are whole elements.
std::int64_t counted_bytes(Collective kind, std::int64_t elements, std::int64_t ranks,
                           int alignment) {
  const std::int64_t unit = ranks * alignment;
  const bool equal_shares = kind != Collective::all_reduce && kind != Collective::broadcast &&
                            kind != Collective::send_recv;
  return (equal_shares ? elements / unit * unit : elements) *
         static_cast<std::int64_t>(sizeof(float));
}

void write(Context& context, const Group& group, Collective kind, std::int64_t bytes,
           const Timing& timing) {
  Sample sample("collective");
  sample.text("collective", name(kind))
      .number("ranks", group.devices.size())
      .number("servers", 1)
      .number("bytes", bytes)
      .text("backend", group.backend);
  // The kernels of the ring never let a switch reduce. What NCCL chose, it does not tell.
  if (std::string(group.backend) != "nccl") sample.flag("in_switch", false);
  context.samples.write(sample.timing(timing));
}

// Every kind and size of one group, until the time is over. `measure` may return no repeats: then
// there is nothing to write, and the group is given up.
void measure_group(Context& context, const Group& group, std::int64_t most,
                   const std::function<Timing(Collective, std::int64_t elements)>& measure,
                   const std::function<std::int64_t(Collective, std::int64_t)>& bytes_of) {
  const std::int64_t factor = context.quick ? 32 : 4;
  for (const Collective kind : kOrder)
    for (std::int64_t elements = kLeastElements; elements <= most; elements *= factor) {
      const std::int64_t bytes = bytes_of(kind, elements);
      if (!context.go_on()) return;
      if (bytes == 0) continue;
      context.show(std::string(name(kind)) + " by " + group.backend + ", " +
                   std::to_string(group.devices.size()) + " ranks, " + std::to_string(bytes) +
                   " bytes");
      const Timing timing = measure(kind, elements);
      if (timing.repeats == 0) return;
      write(context, group, kind, bytes, timing);
    }
}

void measure_ring(Context& context, const Group& group) {
  const bool is_virtual = group.devices.front() == group.devices.back();
  const std::int64_t most = most_elements(group, is_virtual ? kMostVirtualElements : kMostElements,
                                          is_virtual ? group.devices.size() : 1);
  RingCommunicator ring(group.devices, most);
  Lanes lanes(ring.lane_devices());
  LaneOptions options;
  if (context.quick) options.limit_us = 20'000;
  measure_group(
      context, group, most,
      [&](Collective kind, std::int64_t elements) {
        const int channels = ring.channels_for(kind, elements);
        const Timing timing = measure_slowest_lane(
            lanes,
            [&](std::size_t lane, int) {
              ring.enqueue(lane, lanes.stream(lane), kind, elements, channels);
            },
            options);
        if (ring.healthy()) return timing;
        context.note("collective: the ring kernels waited for each other in vain; left out");
        return Timing{};
      },
      [&](Collective kind, std::int64_t elements) {
        // Only all-to-all leaves the rest of an uneven buffer out.
        return kind == Collective::all_to_all ? counted_bytes(kind, elements, ring.ranks(), 4)
                                              : elements * std::int64_t{sizeof(float)};
      });
}

#ifdef TRAINYARD_PROBE_NCCL
void measure_nccl(Context& context, const Group& group) {
  const std::int64_t most = most_elements(group, kMostElements, 1);
  NcclGroup nccl(group.devices, most);
  measure_group(
      context, group, most,
      [&](Collective kind, std::int64_t elements) {
        return nccl.measure(kind, elements, context.quick ? 1000 : 3000, context.quick ? 3 : 7);
      },
      [&](Collective kind, std::int64_t elements) {
        return counted_bytes(kind, elements, static_cast<std::int64_t>(group.devices.size()), 1);
      });
}
#endif

// A group that fails does not take the others with it.
void attempt(Context& context, const Group& group,
             const std::function<void(Context&, const Group&)>& measure) {
  try {
    measure(context, group);
  } catch (const std::exception& error) {
    context.note("collective: " + std::to_string(group.devices.size()) + " ranks by " +
                 group.backend + ": " + error.what());
  }
}

void measure_loopback(Context& context) {
  context.note(
      "collective: one device, so the ranks are virtual; only the cost of their steps is measured");
  for (const std::size_t ranks : {8, 4, 2}) {
    const Group group{std::vector<int>(ranks, context.device().index), "loopback"};
    if (context.go_on() && RingCommunicator::possible(group.devices))
      attempt(context, group, measure_ring);
  }
}

}  // namespace

void run_collective(Context& context) {
  if (context.devices.size() < 2) return measure_loopback(context);
#ifdef TRAINYARD_PROBE_NCCL
  for (const std::size_t size : group_sizes(context.devices.size()))
    if (context.go_on()) attempt(context, {first_devices(context, size), "nccl"}, measure_nccl);
#else
  context.note("collective: built without NCCL; its collectives are not measured");
#endif
  for (const std::size_t size : group_sizes(context.devices.size())) {
    if (!context.go_on()) return;
    const Group group{first_devices(context, size), "ring"};
    if (RingCommunicator::possible(group.devices))
      attempt(context, group, measure_ring);
    else
      context.note("collective: " + std::to_string(size) +
                   " devices do not reach each other's memory; no ring of our own");
  }
}

}  // namespace trainyard::probe
