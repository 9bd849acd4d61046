// A small GPT on one toy server.
#pragma once

#include "sim/simulate/step.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

namespace trainyard {

// Four micro-batches of one sample of 256 tokens.
inline Job gpt_job(int tensor, int data, int stages) {
  Job job;
  job.network = gpt(4, 512, 8, 8192);
  job.cluster = toy::cluster(tensor * data * stages, 1);
  job.recipe.global_batch = std::int64_t{4} * data;
  job.recipe.micro_batch.sequence_length = 256;
  job.plan.degrees = {.tensor = tensor, .data = data, .pipeline = stages};
  return job;
}

}  // namespace trainyard
