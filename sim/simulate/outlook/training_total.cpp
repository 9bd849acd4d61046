#include "sim/simulate/outlook/training_total.h"

#include <array>
#include <cmath>

#include "sim/base/divide.h"

namespace trainyard::simulate {

std::optional<TrainingTotal> training_total(const Job& job, const StepReport& report) {
  if (job.length.samples <= 0) return std::nullopt;
  TrainingTotal total;
  total.samples = job.length.samples;
  const double of_step = report.counted * static_cast<double>(job.recipe.global_batch);
  total.steps = std::ceil(total.samples / of_step);
  if (report.is_language)
    total.tokens = total.samples * static_cast<double>(job.recipe.micro_batch.sequence_length);
  total.gpu_hour = job.length.gpu_hour;
  if (!report.step_time) return total;
  const double hours = total.steps * Seconds(*report.step_time).count() / 3600;
  total.days = hours / 24;
  total.gpu_hours = hours * report.world_size;
  if (total.gpu_hour) total.dollars = total.gpu_hours * *total.gpu_hour;
  if (report.energy) total.kilowatt_hours = total.steps * report.energy->joules / 3.6e6;
  return total;
}

std::optional<StepEnergy> step_energy(const Job& job, const Step& step, const StepReport& report) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  const std::vector<topologies::GpuKind> in_use = gpu_kinds_in_use(job.cluster);
  const bool is_known = std::all_of(in_use.begin(), in_use.end(), [](const topologies::GpuKind& k) {
    return k.gpu->busy_power > Watts(0);
  });
  if (step.loads.empty() || !report.step_time || !is_known) return std::nullopt;
  const double seconds = Seconds(*report.step_time).count();
  if (seconds <= 0) return std::nullopt;
  StepEnergy found;
  // Of all ranks: 131,072 of them for a minute outgrow 64 bits.
  std::vector<std::array<Int128, kLoads>> times(kinds.size());
  std::vector<double> ranks(kinds.size());
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const lower::RankClass& rank_class = step.lowered.classes[c];
    if (!step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)].on_gpu()) continue;
    const auto kind = static_cast<std::size_t>(rank_class.gpu_kind);
    const LoadTimes own = with_waiting(step.loads[c], step.breakdowns[c]);
    for (std::size_t l = 0; l < kLoads; ++l)
      times[kind][l] += Int128{own[l].count()} * rank_class.ranks;
    ranks[kind] += rank_class.ranks;
  }
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const topologies::GpuSpec& gpu = *kinds[kind].gpu;
    double joules = 0;
    for (std::size_t l = 0; l < kLoads; ++l)
      joules +=
          power(gpu, static_cast<Load>(l)).count() * static_cast<double>(times[kind][l]) / 1e12;
    found.joules += joules;
    const double watts = ranks[kind] > 0 ? joules / (seconds * ranks[kind]) : 0;
    found.watts_by_gpu_kind.push_back(watts);
    if (ranks[kind] == 0 || !gpu.cooling) continue;
    const double settled = gpu.cooling->settled(Watts(watts), gpu.busy_power);
    found.celsius = std::max(found.celsius.value_or(settled), settled);
  }
  found.watts = found.joules / (seconds * report.world_size);
  found.joules_per_sample =
      found.joules / (report.counted * static_cast<double>(job.recipe.global_batch));
  if (report.is_language)
    found.joules_per_token =
        found.joules_per_sample / static_cast<double>(job.recipe.micro_batch.sequence_length);
  return found;
}

std::optional<CloudOrOwn> cloud_or_own(const Job& job, const StepReport& report) {
  if (!job.length.own || !job.length.gpu_hour || !report.energy) return std::nullopt;
  CloudOrOwn found = cloud_or_own(*job.length.own, *job.length.gpu_hour,
                                  Watts(report.energy->watts), job.cluster.server.gpus);
  if (report.training) {
    found.training_cloud = report.training->gpu_hours * found.cloud_gpu_hour;
    found.training_own = report.training->gpu_hours * found.own_gpu_hour;
  }
  return found;
}

}  // namespace trainyard::simulate
