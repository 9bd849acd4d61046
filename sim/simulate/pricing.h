// By which profile a machine is priced, and whether that is a calibration of its own GPU.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/families/network_works.h"
#include "sim/cost/profile.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/gpu_price.h"

namespace trainyard::simulate {

struct Pricing {
  std::optional<cost::Profile> profile;  // none: datasheet and closed forms
  // Why the GPU counts as uncalibrated: "medians of a100-sxm4-40gb, a100-sxm4-80gb". Empty: the
  // profile is its own.
  std::string uncalibrated;
  int multiprocessors = 1;  // the GPU's own, else those of what it is priced by; 1: not stated
};

// A profile of another GPU is no reason to stop here: `profile->gpu` says whose it is, and all of
// it is extrapolated. `configs`: a folder as of scenario::configs_folder(). Throws ScenarioError if
// a profile is wrong.
Pricing pricing_of(const scenario::ProfileChoice& choice, const topologies::ServerSpec& server,
                   const std::string& configs);

// Of each kind of GPUs of a cluster, which is told their multiprocessors. Requires: a choice for
// each kind.
std::vector<GpuPrice> prices_of(const std::vector<scenario::ProfileChoice>& choices,
                                topologies::ClusterSpec& cluster, const std::string& configs);

// The machines of scenarios as they were priced, each read once. May be used from several threads
// at once.
class PricedMachines {
 public:
  struct Machine {
    topologies::ClusterSpec cluster;  // told its multiprocessors
    std::vector<GpuPrice> prices;
    std::shared_ptr<models::NetworkWorks> works;  // of what trains on it
  };
  // As prices_of() has them. Throws the same.
  std::shared_ptr<const Machine> of(const scenario::Scenario& scenario);

 private:
  std::mutex mutex_;
  // The keys live as long, so that no other machine can stand in their place.
  std::map<std::shared_ptr<const scenario::NetworkAndMachine>, std::shared_ptr<const Machine>>
      machines_;
};

}  // namespace trainyard::simulate
