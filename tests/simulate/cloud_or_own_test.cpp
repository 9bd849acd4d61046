// Rented and owned GPUs: closed forms of where they cost the same.
#include "sim/simulate/outlook/cloud_or_own.h"

#include <doctest/doctest.h>

#include "sim/recipe/recipe.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// A server of eight GPUs.
constexpr int kGpus = 8;
Ownership server() {
  Ownership own;
  own.server = 240'000;
  own.years = 5;
  own.utilisation = 0.5;
  own.kilowatt_hour = 0.1;
  own.pue = 1.25;
  own.host_power = Watts(1600);
  own.yearly = 0;
  return own;
}

}  // namespace

TEST_CASE("owning breaks even after the purchase over what an hour of it saves") {
  // 600 W and a fifth of a kilowatt of the host, 1 kW at the site: ten cents an hour.
  const CloudOrOwn found = cloud_or_own(server(), 2.1, Watts(600), kGpus);
  CHECK(found.energy == about(0.1));
  CHECK(found.purchase == about(30'000));
  REQUIRE(found.break_even_hours);
  CHECK(*found.break_even_hours == about(30'000 / (2.1 - 0.1)));
  CHECK(*found.break_even_years == about(15'000 / 4380.0));
  CHECK(found.own_is_cheaper);
  CHECK(found.own_gpu_hour == about(0.1 + 30'000 / (4380.0 * 5)));
}

TEST_CASE("owning never breaks even where running it costs as much as the cloud") {
  Ownership own = server();
  CHECK(!cloud_or_own(own, 0.09, Watts(600), kGpus).break_even_hours);
  // 8,760 dollars a year for eight GPUs that train half of the time: a quarter of a dollar an hour.
  own.yearly = 8760;
  const CloudOrOwn found = cloud_or_own(own, 0.3, Watts(600), kGpus);
  CHECK(found.fixed == about(0.25));
  CHECK(!found.break_even_hours);
  CHECK(!found.own_is_cheaper);
}

TEST_CASE("at the least use from which owning is cheaper both cost the same") {
  Ownership own = server();
  own.yearly = 10'000;
  const CloudOrOwn found = cloud_or_own(own, 2, Watts(500), kGpus);
  REQUIRE(found.least_utilisation);
  own.utilisation = *found.least_utilisation;
  const CloudOrOwn even = cloud_or_own(own, 2, Watts(500), kGpus);
  CHECK(even.own_gpu_hour == about(2));
  CHECK(*even.break_even_years == about(own.years));
  // Where even a server that always trains is dearer there is none.
  own.server = 1e7;
  CHECK(!cloud_or_own(own, 2, Watts(500), kGpus).least_utilisation);
}

TEST_CASE("the two curves cross where owning breaks even, and begin at nothing and the purchase") {
  const CloudOrOwn found = cloud_or_own(server(), 2.1, Watts(600), kGpus);
  CHECK(found.curve.front().cloud == 0);
  CHECK(found.curve.front().own == about(30'000));
  for (const SpentBy& point : found.curve)
    CHECK((point.own > point.cloud) == (point.years < *found.break_even_years));
  CHECK(found.curve.back().years >= 5);
}

TEST_CASE("owning is dearer the less it is used") {
  const CloudOrOwn found = cloud_or_own(server(), 2.1, Watts(600), kGpus);
  for (std::size_t i = 1; i < found.by_use.size(); ++i) {
    CHECK(found.by_use[i - 1].utilisation < found.by_use[i].utilisation);
    CHECK(found.by_use[i - 1].gpu_hour > found.by_use[i].gpu_hour);
  }
}
