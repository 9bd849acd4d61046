#include "sim/plan/replicas/parts/host_shards.h"

#include <algorithm>

#include "sim/plan/step_memory.h"

namespace trainyard::plan {

using recipe::OffloadTo;

namespace {

constexpr const char* kFetched = "fetched shards of parameters";

}  // namespace

bool HostShards::used() const {
  return context_.recipe.offload.parameters != OffloadTo::none;
}

Bytes HostShards::shard(const GatherUnit& unit) const {
  const int shards = context_.strategy().parameter_shards;
  return state_bytes(unit.parameters[0], context_.recipe, context_.strategy()).parameters +
         Bytes(shard_of(unit.frozen[0].count(), shards));
}

void HostShards::read(const std::vector<GatherUnit>& units, std::size_t number) {
  while (number < units.size() && !units[number].gathers)
    ++number;
  if (number >= units.size() || number < read_) return;
  context_.builder.host_transfer(HostTransfer::nvme_read, shard(units[number]), limit_,
                                 "read shard of " + units[number].name);
  read_ = number + 1;
}

StreamSet HostShards::fetch(const std::vector<GatherUnit>& units, std::size_t number) {
  if (!used()) return 0;
  const GatherUnit& unit = units[number];
  StreamSet waits = limit_;
  const bool from_nvme = context_.recipe.offload.parameters == OffloadTo::nvme;
  if (from_nvme) {
    read(units, number);
    waits |= stream_bit(StreamKind::nvme_read);
    context_.host.buffers = std::max(context_.host.buffers, 2 * shard(unit));
  }
  context_.builder.host_transfer(HostTransfer::to_device, shard(unit), waits,
                                 "fetch shard of " + unit.name);
  context_.builder.last_takes(MemoryKind::communication_buffers, shard(unit), kFetched);
  if (from_nvme) read(units, number + 1);
  return stream_bit(StreamKind::to_device);
}

void HostShards::leave(const GatherUnit& unit) {
  if (used())
    context_.builder.last_gives_back(MemoryKind::communication_buffers, shard(unit), kFetched);
}

}  // namespace trainyard::plan
