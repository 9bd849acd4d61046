// By whose measurements each kind of GPUs of a cluster is priced.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "sim/cost/profile.h"
#include "topologies/cluster.h"

namespace trainyard::simulate {

struct GpuPrice {
  GpuPrice() = default;
  GpuPrice(std::optional<cost::Profile> own, std::string why)
      : profile(own ? std::make_shared<const cost::Profile>(std::move(*own)) : nullptr),
        uncalibrated(std::move(why)) {}

  std::shared_ptr<const cost::Profile> profile;  // null: datasheet and closed forms
  std::string uncalibrated;                      // Pricing::uncalibrated
};

// What follows takes prices by topologies::gpu_kinds.

std::unique_ptr<cost::MessageCost> message_cost(std::span<const GpuPrice> prices);

// Whose numbers the times are, in words, of the GPUs in use; of several kinds each says whose.
struct PricedBy {
  std::string profile, uncalibrated;  // StepReport
};
PricedBy priced_by(const topologies::ClusterSpec& cluster, std::span<const GpuPrice> prices);

}  // namespace trainyard::simulate
