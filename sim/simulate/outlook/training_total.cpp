#include "sim/simulate/outlook/training_total.h"

#include <cmath>

namespace trainyard::simulate {

std::optional<TrainingTotal> training_total(const Job& job, const StepReport& report) {
  if (job.length.samples <= 0) return std::nullopt;
  TrainingTotal total;
  total.samples = job.length.samples;
  total.steps = std::ceil(total.samples / static_cast<double>(job.recipe.global_batch));
  if (report.is_language)
    total.tokens = total.samples * static_cast<double>(job.recipe.micro_batch.sequence_length);
  total.gpu_hour = job.length.gpu_hour;
  if (!report.step_time) return total;
  const double hours = total.steps * Seconds(*report.step_time).count() / 3600;
  total.days = hours / 24;
  total.gpu_hours = hours * report.world_size;
  if (total.gpu_hour) total.dollars = total.gpu_hours * *total.gpu_hour;
  const topologies::GpuSpec& gpu = job.cluster.server.gpu;
  if (gpu.busy_power > Watts(0)) {
    const double busy = 1 - report.bubble_fraction;
    const Watts most = gpu.power_limit > Watts(0) ? gpu.power_limit : gpu.busy_power;
    const Watts mean = gpu.idle_power + busy * (most - gpu.idle_power);
    total.kilowatt_hours = total.gpu_hours * mean.count() / 1000;
  }
  return total;
}

}  // namespace trainyard::simulate
