// How far off an estimate may be, from the errors of steps like it.
#include "sim/simulate/outlook/interval.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const EstimateClass kHere{"a transformer", true, false};

// `count` steps of a class whose errors are 1 %, 2 %, ...
std::vector<StepError> steps(const EstimateClass& of, int count, double scale = 0.01) {
  std::vector<StepError> rows;
  for (int i = 1; i <= count; ++i)
    rows.push_back({"set", of, scale * i});
  return rows;
}

void append(std::vector<StepError>& rows, const std::vector<StepError>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

}  // namespace

// Of 21 sorted errors two stand beyond the tenth percentile on each side. The measured time is the
// estimate over 1 + error, so the largest errors give the low end.
TEST_CASE("eight of ten steps of the class lie in the interval") {
  const Duration step = to_duration(Seconds(10));
  const auto found = interval(steps(kHere, 21), kHere, step);
  REQUIRE(found);
  CHECK(found->low == to_duration(Seconds(10 / 1.19)));
  CHECK(found->high == to_duration(Seconds(10 / 1.03)));
  CHECK(found->steps == 21);
  CHECK(found->of == "a transformer, a profile of its GPU, several servers");
  CHECK(found->is_of_kind);
}

TEST_CASE("an interval that all steps passed too slow lies below the estimate") {
  const auto found = interval(steps(kHere, 10), kHere, to_duration(Seconds(1)));
  REQUIRE(found);
  CHECK(found->high < to_duration(Seconds(1)));
}

TEST_CASE("a class with fewer than ten steps takes those of the next wider one") {
  EstimateClass one_server = kHere, no_profile = kHere, other = kHere;
  one_server.one_server = true;
  no_profile.profile = false;
  other.network = "a recommender";
  const Duration step = to_duration(Seconds(1));
  std::vector<StepError> rows = steps(kHere, 9);
  CHECK(!interval(rows, kHere, step));
  append(rows, steps(other, 1));
  const auto any = interval(rows, kHere, step);
  REQUIRE(any);
  CHECK(any->of == "any network");
  CHECK(!any->is_of_kind);
  append(rows, steps(no_profile, 1));
  CHECK(interval(rows, kHere, step)->of == "a transformer");
  append(rows, steps(one_server, 1));
  CHECK(interval(rows, kHere, step)->of == "a transformer, a profile of its GPU");
  CHECK(interval(rows, kHere, step)->steps == 10);
  append(rows, steps(kHere, 1));
  CHECK(interval(rows, kHere, step)->of == "a transformer, a profile of its GPU, several servers");
  CHECK(!interval(rows, other, step)->is_of_kind);
}

TEST_CASE("an estimate outside its interval says on which side like steps were") {
  const Interval like{to_duration(Seconds(2)), to_duration(Seconds(3)), 10, "", true};
  CHECK(describe(like, to_duration(Seconds(2.5))) == "2.00 s to 3.00 s: 8 of 10 like it");
  CHECK(describe(like, to_duration(Seconds(1))) == "2.00 s to 3.00 s: 8 of 10 like it took longer");
  CHECK(describe(like, to_duration(Seconds(4))) == "2.00 s to 3.00 s: 8 of 10 like it were faster");
}
