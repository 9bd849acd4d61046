// What a collective of nearly no bytes costs, from virtual ranks on one device: their bandwidth
// means nothing, but a kernel that starts, and flags that go from rank to rank, cost them what they
// cost real ones at the least. Source: docs/cost-messages.md.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

// Above this size bytes cost more than steps do.
constexpr Bytes kMostBytes{64 << 10};
constexpr std::size_t kFewestSteps = 3;  // of two constants

void describe(const Sample& sample, FitRecord& record) {
  const CollectiveCase& c = as<CollectiveCase>(sample);
  record.group = "collective start";
  record.size_name = "bytes";
  record.size = static_cast<double>(c.bytes.count());
  record.shape =
      fmt::format("{}, {} bytes", title(c.collective, c.ranks, c.servers), c.bytes.count());
}

// The simulator's own latency of a collective without a law: links of no cost.
double seconds(const cost::CollectiveStart& law, const CollectiveCase& c) {
  cost::Profile alone;
  alone.collective_start = law;
  cost::GroupShape shape;
  shape.ranks = shape.ranks_per_server = c.ranks;
  shape.intra_bandwidth = BytesPerSecond(1e18);
  return fitted_message_cost(alone)
      ->collective(*kind_of(c.collective), Bytes(0), shape)
      .latency.count();
}

cost::CollectiveStart law_of(const Constants& values) {
  cost::CollectiveStart law;
  law.start = Seconds(values[0]);
  law.per_step = Seconds(values[1]);
  return law;
}

}  // namespace

void fit_collective_start(const Fitting& f) {
  const std::vector<const Sample*> all =
      f.choose<CollectiveCase>([](const CollectiveCase& c) { return is_virtual(c); });
  if (all.empty()) return;
  // Of each collective and number of ranks the smallest size, if it is small.
  std::map<std::pair<CollectiveKind, int>, const Sample*> smallest;
  for (const Sample* sample : all) {
    const CollectiveCase& c = as<CollectiveCase>(*sample);
    const auto kind = kind_of(c.collective);
    if (!kind || c.ranks < 2 || c.servers > 1 || c.bytes > kMostBytes) continue;
    const Sample*& best = smallest[{*kind, c.ranks}];
    if (best == nullptr || c.bytes < as<CollectiveCase>(*best).bytes) best = sample;
  }
  LawTask task;
  std::set<const Sample*> used;
  for (const auto& [key, sample] : smallest) {
    task.samples.push_back(sample);
    used.insert(sample);
    const double steps = seconds(law_of({0, 1}), as<CollectiveCase>(*sample));
    task.places.push_back({steps});
  }
  std::vector<const Sample*> others;
  for (const Sample* sample : all)
    if (used.count(sample) == 0) others.push_back(sample);
  f.unused(others, "virtual ranks on one device: its bandwidth means nothing", describe);
  if (task.samples.empty() ||
      !f.enough(task.samples, distinct(task.places), kFewestSteps, describe))
    return;
  task.distance = 0.5;  // another number of steps is another case
  task.constants = {start_up(5e-6), start_up(1e-6)};
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    std::vector<double> all_seconds;
    for (const std::size_t i : which)
      all_seconds.push_back(seconds(law_of(values), as<CollectiveCase>(*task.samples[i])));
    return all_seconds;
  };
  const LawFit fit = fit_law(task);
  cost::CollectiveStart law = law_of(fit.values);
  const std::size_t first = f.result.records.size();
  f.records(
      task, fit,
      [&](const Sample& s) { return microseconds(Seconds(seconds(law, as<CollectiveCase>(s)))); },
      describe);
  law.from = f.provenance(
      fmt::format("The smallest buffers of {} collectives among virtual ranks of one device",
                  task.samples.size()),
      first);
  law.from.basis = Basis::analytic;
  f.profile().collective_start = std::move(law);
}

}  // namespace trainyard::fit
