// What a message between two devices of a cluster is offered, and the links that it crosses.
//
// The processors of a server are behind all its NICs, which those who send to them share, as far
// away as the GPU of the sender's place there and, with flows, behind that GPU's NIC. GPUs of the
// same server reach them over PCIe, which they share as they do for copies; what comes back comes
// one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/device_placement.h"
#include "sim/lower/group_shape.h"
#include "sim/lower/host_links.h"

namespace trainyard::lower {

class DeviceMessages {
 public:
  // `topology`: null without flows. All references must outlive this.
  DeviceMessages(const topologies::ClusterSpec& cluster, const topologies::Topology* topology,
                 GroupShapes& shapes, const HostLinks& hosts)
      : cluster_(cluster), topology_(topology), shapes_(shapes), hosts_(hosts) {}

  // By server: how many messages leave it, or arrive at it, at the same time. Those of one player
  // follow each other but for Connection::at_once of them.
  struct Crossing {
    std::vector<int> leaving, arriving;
  };
  Crossing crossing(const plan::Connection& connection, const DevicePlacement& placement) const;

  // Beside the messages of `crossing`. Requires: not both devices are hosts.
  cost::GroupShape shape(Device from, Device to, const Crossing& crossing);

  // In the order of HostLinks::path behind those of the topology. Requires: flows.
  std::vector<std::uint32_t> links(const Device& from, const Device& to) const;

 private:
  int gpu(const Device& device) const { return device.server * cluster_.gpu_slots() + device.gpu; }
  // The GPU of the host's server that sits where `device` sits in its own, whose NIC a message
  // between them crosses.
  Device like(const Device& device, const Device& host) const;

  const topologies::ClusterSpec& cluster_;
  const topologies::Topology* topology_;
  GroupShapes& shapes_;
  const HostLinks& hosts_;
};

}  // namespace trainyard::lower
