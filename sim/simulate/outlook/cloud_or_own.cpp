#include "sim/simulate/outlook/cloud_or_own.h"

#include <algorithm>

#include "sim/recipe/recipe.h"

namespace trainyard::simulate {

namespace {

constexpr double kHoursOfYear = 8760;
constexpr int kPoints = 48;

struct Rates {
  const recipe::Ownership& own;
  double cloud, gpus, energy;

  double purchase() const { return own.server / gpus; }
  double hours(double utilisation) const { return kHoursOfYear * utilisation; }
  double fixed(double utilisation) const { return own.yearly / gpus / hours(utilisation); }
  double running(double utilisation) const { return energy + fixed(utilisation); }
  double all(double utilisation) const {
    return running(utilisation) + purchase() / (hours(utilisation) * own.years);
  }
  std::optional<double> break_even_hours(double utilisation) const {
    const double saved = cloud - running(utilisation);
    if (saved <= 0) return std::nullopt;
    return purchase() / saved;
  }
  std::optional<double> break_even_years(double utilisation) const {
    const std::optional<double> after = break_even_hours(utilisation);
    if (!after) return std::nullopt;
    return *after / hours(utilisation);
  }
};

// From the day of purchase to the end of the servers' years, or a little beyond where owning
// becomes cheaper if that is not much later.
std::vector<SpentBy> curve(const Rates& rates, std::optional<double> break_even) {
  const recipe::Ownership& own = rates.own;
  double years = own.years;
  if (break_even && *break_even <= 2 * years) years = std::max(years, 1.15 * *break_even);
  std::vector<SpentBy> points;
  for (int i = 0; i <= kPoints; ++i) {
    const double at = years * i / kPoints;
    const double hours = at * rates.hours(own.utilisation);
    points.push_back(
        {at, rates.cloud * hours, rates.purchase() + rates.running(own.utilisation) * hours});
  }
  return points;
}

}  // namespace

CloudOrOwn cloud_or_own(const recipe::Ownership& own, double cloud_gpu_hour, Watts gpu_watts,
                        int gpus_per_server) {
  CloudOrOwn result;
  result.watts = gpu_watts.count() + own.host_power.count() / gpus_per_server;
  result.energy = result.watts * own.pue * own.kilowatt_hour / 1000;
  const Rates rates{own, cloud_gpu_hour, static_cast<double>(gpus_per_server), result.energy};
  const double used = own.utilisation;
  result.cloud_gpu_hour = cloud_gpu_hour;
  result.purchase = rates.purchase();
  result.fixed = rates.fixed(used);
  result.own_gpu_hour = rates.all(used);
  result.pue = own.pue;
  result.years = own.years;
  result.utilisation = used;
  result.break_even_hours = rates.break_even_hours(used);
  result.break_even_years = rates.break_even_years(used);
  result.own_is_cheaper = result.own_gpu_hour < cloud_gpu_hour;
  const double each_year = rates.purchase() / own.years + own.yearly / rates.gpus;
  const double saved = (cloud_gpu_hour - result.energy) * kHoursOfYear;
  if (saved > 0 && each_year / saved <= 1) result.least_utilisation = each_year / saved;
  std::vector<double> uses = {0.1, 0.25, 0.5, 0.75, 1};
  if (std::find(uses.begin(), uses.end(), used) == uses.end()) uses.push_back(used);
  std::sort(uses.begin(), uses.end());
  for (const double use : uses)
    result.by_use.push_back({use, rates.all(use), rates.break_even_years(use)});
  result.curve = curve(rates, result.break_even_years);
  return result;
}

}  // namespace trainyard::simulate
