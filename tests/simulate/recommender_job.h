// A small recommender on one toy server.
#pragma once

#include "models/recommender/recommender.h"
#include "sim/simulate/step.h"
#include "tests/simulate/toy.h"
#include "tests/support/rooms.h"

namespace trainyard {

// `tables` of 1000 rows of 32 numbers, two lookups in each; 64 samples a rank.
inline Job recommender_job(int ranks, std::int64_t tables, TableSharding sharding) {
  Recommender network;
  network.dense_features = 16;
  network.dimension = 32;
  network.tables = {{.rows = 1000, .count = tables, .lookups = 2, .sharding = sharding}};
  network.bottom_mlp = {64, 32};
  network.top_mlp = {128, 1};
  Job job;
  job.network = network;
  job.cluster = toy::cluster(ranks, 1);
  job.recipe.micro_batch.size = 64;
  job.recipe.global_batch = 64 * ranks;
  job.recipe.precision.compute = job.recipe.precision.gradients = Dtype::fp16;
  job.recipe.optimizer = Optimizer::sgd;
  job.plan.degrees = {.data = ranks};
  return job;
}

}  // namespace trainyard
