// What is held out has no relative among what is fitted, and nothing depends on the order of lines.
#include <doctest/doctest.h>

#include <algorithm>

#include "calibrate/fit/holdout.h"
#include "calibrate/fit/least_squares.h"
#include "tests/calibrate/synthetic.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;
using fit::Coordinates;

namespace {

std::vector<Coordinates> random_places(std::uint64_t seed, int count) {
  Noise noise(seed);
  std::vector<Coordinates> places;
  for (int i = 0; i < count; ++i)
    places.push_back({std::log(static_cast<double>(noise.size(7, 14) / 64 * 64)),
                      std::log(static_cast<double>(noise.size(7, 14) / 64 * 64))});
  return places;
}

std::vector<std::string> mixed_lines() {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.03, 1, 60);
  for (int power = 10; power <= 30; ++power)
    lines.push_back(
        collective_line("all-gather", 8, std::int64_t{1} << power, 2e-5 + std::exp2(power) / 3e11));
  return lines;
}

std::string profile_of(const std::vector<std::string>& lines) {
  return profile_json(fit_lines(lines).profile);
}

}  // namespace

TEST_CASE("No held-out family is a neighbour of a fitted one") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<Coordinates> places = random_places(seed, 150);
    const fit::Split split = fit::split(places, 0.15);
    std::size_t held = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      held += split.held_out[i] ? 1 : 0;
      for (std::size_t j = 0; j < places.size(); ++j) {
        if (split.held_out[i] == split.held_out[j]) continue;
        const double apart =
            std::max(std::abs(places[i][0] - places[j][0]), std::abs(places[i][1] - places[j][1]));
        CHECK(apart > split.distance);
      }
    }
    CHECK(held >= 30);
    CHECK(held <= 70);
  }
}

TEST_CASE("Other sizes are held out between the smallest and the largest of a fitted family") {
  std::vector<Coordinates> places;
  std::vector<double> sizes;
  for (int family = 0; family < 20; ++family) {
    for (int i = 0; i < 10; ++i) {
      places.push_back({1.0 * family, 2.0 * family});
      sizes.push_back(0.5 * i);
      places.push_back(places.back());  // another layout
      sizes.push_back(0.5 * i);
    }
  }
  places.push_back({99, 99});  // a family of one size
  sizes.push_back(3);
  const std::vector<bool> held = fit::split_inside(places, sizes, 0.1);
  for (std::size_t i = 0; i + 1 < places.size(); i += 2) {
    CHECK(held[i] == held[i + 1]);
    if (held[i]) CHECK((sizes[i] > 0 && sizes[i] < 4.5));
  }
  CHECK(std::count(held.begin(), held.end(), true) == 20 * 2 * 2);
  CHECK_FALSE(held.back());
  // Nothing is left of a chain of neighbours.
  const std::vector<bool> dense =
      fit::split_inside({{0}, {0}, {0}, {0}, {0}, {0}}, {0, 0.05, 0.1, 0.15, 0.2, 0.25}, 0.1);
  CHECK(std::count(dense.begin(), dense.end(), true) == 0);
}

TEST_CASE("The deal follows the places, not their order") {
  const std::vector<Coordinates> places = random_places(42, 80);
  const fit::Split forward = fit::split(places, 0.15);
  const std::vector<Coordinates> reversed(places.rbegin(), places.rend());
  const fit::Split backward = fit::split(reversed, 0.15);
  for (std::size_t i = 0; i < places.size(); ++i)
    CHECK(forward.held_out[i] == backward.held_out[places.size() - 1 - i]);
}

TEST_CASE("A dense grid is dealt at a smaller distance, a handful of points not at all") {
  std::vector<Coordinates> line;
  for (int i = 0; i < 100; ++i)
    line.push_back({0.06 * i});
  const fit::Split dense = fit::split(line, 0.1);
  CHECK(dense.distance < 0.06);
  CHECK(std::count(dense.held_out.begin(), dense.held_out.end(), true) >= 20);
  const fit::Split few = fit::split({{0}, {1}, {2}, {3}}, 0.1);
  CHECK(std::count(few.held_out.begin(), few.held_out.end(), true) == 0);
}

TEST_CASE("Shuffled, doubled and divided samples give the same profile, byte for byte") {
  std::vector<std::string> lines = mixed_lines();
  const std::string once = profile_of(lines);
  CHECK(profile_of(lines) == once);

  std::vector<std::string> doubled = lines;
  doubled.insert(doubled.end(), lines.begin(), lines.end());
  CHECK(profile_of(doubled) == once);

  SplitMix64 random(17);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = lines.size() - 1; i > 0; --i)
      std::swap(lines[i], lines[random.below(i + 1)]);
    CHECK(profile_of(lines) == once);
  }
  const std::size_t half = lines.size() / 2;
  const auto middle = lines.begin() + static_cast<std::ptrdiff_t>(half);
  const SampleFile first({lines.begin(), middle}), second({middle, lines.end()});
  const auto both = [](const std::string& a, const std::string& b) {
    return profile_json(fit_samples({a, b}, test_options()).profile);
  };
  CHECK(both(first.path(), second.path()) == once);
  CHECK(both(second.path(), first.path()) == once);
}

TEST_CASE("Repeats of a case count as their median") {
  std::vector<std::string> lines = mixed_lines();
  const std::string once = profile_of(lines);
  // One slow and one fast repeat of every case around the first.
  std::vector<std::string> repeated;
  for (const std::string& line : lines) {
    const std::size_t at = line.find("\"time_us\": ") + 11;
    const double time = std::stod(line.substr(at));
    for (const double factor : {1.0, 1.4, 0.8})
      repeated.push_back(line.substr(0, at) + fmt::format("{:.6g}}}", factor * time));
  }
  CHECK(profile_of(repeated) == once);
}

TEST_CASE("The profile of a fit reads back as it was written") {
  const FitResult result = fit_lines(mixed_lines());
  const SampleFile file(SampleFile::Raw{profile_json(result.profile)});
  CHECK(read_profile(file.path()) == result.profile);
}

TEST_CASE("Least squares finds the minimum of a known problem from any start") {
  // y = a + b x with one wild point: soft-L1 keeps the line of the others.
  std::vector<double> measured;
  for (int i = 1; i <= 30; ++i)
    measured.push_back(i == 13 ? 5000 : 3.0 + 2.0 * i);
  const fit::Law law = [](const fit::Constants& c) {
    std::vector<double> all;
    for (int i = 1; i <= 30; ++i)
      all.push_back(c[0] + c[1] * i);
    return all;
  };
  for (const double start : {0.02, 1.0, 50.0}) {
    const fit::Solution best =
        fit::least_squares(law, measured, {{0.01, 100, start, true}, {0.01, 100, start, true}});
    CHECK(best.values[0] == about(3).within(0.05));
    CHECK(best.values[1] == about(2).within(0.05));
  }
  // A minimum outside the bounds is found at the bound.
  const fit::Solution bound =
      fit::least_squares(law, measured, {{0.01, 100, 1, true}, {0.01, 1, 0.5, true}});
  CHECK(bound.values[1] == about(1).within(1e-3));
}
