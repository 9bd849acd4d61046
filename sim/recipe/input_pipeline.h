// How samples reach a rank: what a scenario says under /training/input_pipeline, and the times of
// one batch that follow. docs/guide/input-pipeline.md has the stages and their closed forms.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/option.h"
#include "sim/base/units.h"

namespace trainyard::recipe {

// Who shares the storage: the ranks of a server its own drives, or those of all servers one that
// they reach over a network.
enum class StorageOf : std::uint8_t { server, cluster };
inline constexpr std::array<std::string_view, 2> kStorageNames = {"server", "cluster"};

// Worker processes of each rank read and prepare whole micro-batches in turn. The rank takes them
// in order and copies each to its GPU. Source: PyTorch, torch/utils/data/dataloader.py
// (_MultiProcessingDataLoaderIter): prefetch_factor batches of each worker are under way.
struct InputPipeline {
  int workers = 1;                                 // of each rank
  Option<int> prefetch = 2;                        // batches of a worker that are in work or wait
  Duration sample_cpu_time{};                      // that a core decodes and augments a sample
  Option<Duration> sample_gpu_time = Duration(0);  // the same of the GPU, before the forward pass
  Bytes prepared_sample;                           // as it is copied to the GPU
  Option<Bytes> stored_sample = Bytes(0);          // as it is read
  // Empty: nothing is read.
  std::optional<BytesPerSecond> storage_bandwidth;
  Option<StorageOf> storage_of = StorageOf::server;
  Option<double> cached_share = 0;  // of the samples that are in the host's memory already
  // Batches are copied while the GPU computes; otherwise each when the pass before has ended.
  Option<bool> copy_ahead = false;

  // What the cluster says: ranks with workers on the server that has most, and all that share the
  // storage; cores of a server, 0: one for each worker.
  int ranks_of_server = 1, ranks_of_storage = 1, cores = 0;

  // How much longer than alone a worker takes where there are fewer cores than workers.
  double contention() const {
    return cores == 0 ? 1 : std::max(1.0, static_cast<double>(workers) * ranks_of_server / cores);
  }
  // Of one batch: of a worker; of this rank's part of the storage; of the GPU.
  Seconds prepare_time(std::int64_t samples) const {
    return Seconds(sample_cpu_time) * (static_cast<double>(samples) * contention());
  }
  Seconds read_time(std::int64_t samples) const {
    if (!storage_bandwidth) return {};
    const double bytes = static_cast<double>(samples) *
                         static_cast<double>(stored_sample.value().count()) *
                         (1 - cached_share.value());
    return Seconds(bytes * ranks_of_storage / storage_bandwidth->count());
  }
  Seconds gpu_time(std::int64_t samples) const {
    return Seconds(sample_gpu_time.value()) * static_cast<double>(samples);
  }
  // Prepared samples that one worker holds at most.
  Bytes held_by_worker(std::int64_t samples) const {
    return checked_product(samples, prefetch.value()) * prepared_sample;
  }
};
inline constexpr int kMostInputWorkers = 64;  // of a rank
inline constexpr int kMostPrefetchedBatches = 64;

}  // namespace trainyard::recipe
