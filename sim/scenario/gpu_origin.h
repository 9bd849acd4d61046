// By whose measurements a GPU is priced that is not exactly one that was measured.
#pragma once

#include <string>
#include <vector>

#include "models/layer/kernel.h"
#include "topologies/cluster.h"

namespace trainyard::scenario {

struct Scenario;

// The paths of the profiles by which the GPUs of a scenario are priced, each once.
std::vector<std::string> profile_files(const Scenario& scenario);

// The path of the profile in a configs folder of a GPU's name, else of a GPU preset with the same
// numbers (peaks, memory within a tenth, its bandwidth, L2); empty: there is none.
std::string own_profile(const topologies::GpuSpec& gpu, const std::string& configs);

// The numbers in which a GPU differs from the preset called `name`, as keys of /cluster/node/gpu:
// "memory_bandwidth". Where no preset is called so: "name", if it is not the GPU's own.
std::vector<std::string> differences_from(const std::string& name, const topologies::GpuSpec& gpu,
                                          const std::string& configs);

struct FittedGpu {
  std::string profile;  // path
  BytesPerSecond link;  // of the NVSwitch in its server preset, per GPU and direction; 0: none
  int multiprocessors = 1;
  double peaks = 1;  // its fastest 16-bit rate, over that of the GPU that it stands in for
};

// Fitted GPUs other than this one that are of its kind, by name; of a CPU fitted CPUs, if there are
// any. Of a GPU: with slowed tensor cores (boards for games and for export: at most three and a
// half times what CUDA cores do) or with whole ones; of the same compute capability, if there are
// any. Among those or else all: with tensor cores or without, for training or for graphics (of
// which CUDA cores reach more than a sixth of what tensor cores do), with the same types of tensor
// cores. Where there is none of the same types, all for the same use; where there is none of these
// either, all that are fitted. Last, those whose compute capability begins with the same number.
std::vector<FittedGpu> fitted_kin(const topologies::GpuSpec& gpu, const std::string& configs);

// Those of the preset called `name`; none if there is no such preset.
topologies::SustainedShares sustained_of(const std::string& name, const std::string& configs);

// What products of a type reach on GPU presets that say it, as shares of its peak.
struct NeighbourShares {
  models::Dtype dtype = models::Dtype::fp16;
  std::vector<double> shares;
  std::string gpus;
};

// Of presets of the same compute capability, whose tensor cores are as fast beside their CUDA
// cores, within a fifth; of the types that the GPU has and any of those measures.
std::vector<NeighbourShares> neighbour_shares(const topologies::GpuSpec& gpu,
                                              const std::string& configs);

// Multiprocessors of the preset called `name`; 1, which is "not stated", if there is none.
int multiprocessors_of(const std::string& name, const std::string& configs);

}  // namespace trainyard::scenario
