#include "sim/lower/flows/port_streams.h"

#include <bit>

namespace trainyard::lower {

PortStreams::PortStreams(std::span<const plan::Role> roles) {
  for (const plan::Role& role : roles) {
    for (const engine::Block& block : role.program.blocks) {
      for (const engine::Op& op : block.ops) {
        const bool sends = op.kind == engine::OpKind::send;
        if (!sends && op.kind != engine::OpKind::collective) continue;
        Masks& masks = sends ? sending_ : collective_;
        if (masks.size() <= op.port) masks.resize(op.port + 1);
        masks[op.port] |= 1U << op.stream;
      }
    }
  }
}

int PortStreams::count(const Masks& masks, std::uint32_t port) {
  return port < masks.size() ? std::popcount(masks[port]) : 0;
}

}  // namespace trainyard::lower
