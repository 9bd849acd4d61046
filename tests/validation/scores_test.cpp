#include "sim/validation/scores.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/about.h"

namespace trainyard::validation {
namespace {

std::vector<Pair> of_ten_seconds(const std::vector<double>& predicted) {
  std::vector<Pair> pairs;
  for (const double seconds : predicted)
    pairs.push_back({seconds, 10});
  return pairs;
}

// Errors of +10, -10, +30 and -50 %.
TEST_CASE("scores: errors are relative to what was measured") {
  const std::vector<Pair> pairs = of_ten_seconds({11, 9, 13, 5});
  const ErrorScore score = score_errors(pairs).value();
  CHECK(score.count == 4);
  CHECK(score.mape == about(0.25));
  CHECK(score.median == about(0.20));
  CHECK(score.p90 == about(0.50));
  CHECK(score.most == about(0.50));
  CHECK(score.bias == about(-0.05));
  CHECK_FALSE(score_errors({}));
}

// 10 rows of +10 % and 300 of -20 %, which count as 100.
TEST_CASE("scores: a large source counts as a hundred rows") {
  const ErrorScore few = score_errors(of_ten_seconds(std::vector<double>(10, 11))).value();
  const ErrorScore many = score_errors(of_ten_seconds(std::vector<double>(300, 8))).value();
  const ErrorScore both = score_sources(std::vector{few, many}).value();
  CHECK(both.count == 310);
  CHECK(both.mape == about(21.0 / 110));
  CHECK(both.median == about(21.0 / 110));
  CHECK(both.bias == about(-19.0 / 110));
  CHECK(both.most == about(0.20));
  CHECK_FALSE(score_sources({}));
}

// Sizes of 1 to n %: nine of ten are not above the ceiling of 0.9 n.
TEST_CASE("scores: nine of ten errors are not above the ninetieth percentile") {
  for (const auto& [count, expected] :
       {std::pair{1, 1}, {2, 2}, {9, 9}, {10, 9}, {11, 10}, {20, 18}, {21, 19}}) {
    std::vector<double> predicted;
    for (int i = count; i >= 1; --i)
      predicted.push_back(10 * (1 + 0.01 * i));
    CAPTURE(count);
    CHECK(score_errors(of_ten_seconds(predicted))->p90 == about(0.01 * expected));
  }
}

TEST_CASE("scores: the median of an odd count is the middle one") {
  CHECK(score_errors(of_ten_seconds({19, 11, 12}))->median == about(0.2));
}

// Spearman's 1 - 6 sum d^2 / (n (n^2 - 1)), which holds without equal values.
TEST_CASE("scores: the rank correlation is that of the order alone") {
  CHECK(rank_correlation(std::vector<Pair>{{1, 5}, {20, 6}, {300, 7}}) == 1.0);
  CHECK(rank_correlation(std::vector<Pair>{{3, 1}, {2, 2}, {1, 3}}) == -1.0);
  const std::vector<Pair> one_swap = {{1, 1}, {2, 2}, {3, 4}, {4, 3}, {5, 5}};
  CHECK(rank_correlation(one_swap).value() == about(1 - 6.0 * 2 / (5 * 24)));
}

// Ranks 0.5, 0.5, 2 against 0, 1, 2: 1.5 / sqrt(1.5 * 2).
TEST_CASE("scores: equal values share the mean of their ranks") {
  const std::vector<Pair> tied = {{1, 1}, {1, 2}, {2, 3}};
  CHECK(rank_correlation(tied).value() == about(0.8660254));
  CHECK_FALSE(rank_correlation(std::vector<Pair>{{1, 1}, {1, 2}, {1, 3}}));
  CHECK_FALSE(rank_correlation(std::vector<Pair>{{1, 1}, {2, 2}}));
}

// The first choice is right although its times are not; the second takes 12 s where 10 s would do.
TEST_CASE("scores: regret is what the pick takes beyond the best") {
  const std::vector<std::vector<Alternative>> choices = {
      {{{5, 20}}, {{6, 30}}, {{7, 21}}}, {{{1, 12}}, {{2, 10}}}, {{{3, 50}}}};
  const Regret regret = pick_regret(choices).value();
  CHECK(regret.choices == 2);
  CHECK(regret.mean == about(0.1));
  CHECK(regret.most == about(0.2));
  CHECK_FALSE(pick_regret(std::vector<std::vector<Alternative>>{{{{1, 1}}}}));
}

TEST_CASE("scores: nobody picks what is said not to fit, unless nothing does") {
  const auto regret = [](const std::vector<Alternative>& choice) {
    return pick_regret(std::vector<std::vector<Alternative>>{choice}).value().mean;
  };
  CHECK(regret({{{1, 40}, {false}}, {{2, 15}}, {{3, 10}}}) == about(0.5));
  CHECK(regret({{{1, 40}, {false}}, {{2, 20}, {false}}}) == about(1));
  // The fastest of all is what the pick is held against, though it is said not to fit.
  CHECK(regret({{{1, 10}, {false}}, {{2, 15}}}) == about(0.5));
}

TEST_CASE("scores: nobody picks what is tight, unless nothing has room") {
  const auto regret = [](const std::vector<Alternative>& choice) {
    return pick_regret(std::vector<std::vector<Alternative>>{choice}).value().mean;
  };
  CHECK(regret({{{1, 40}, {true, true}}, {{2, 15}}, {{3, 10}}}) == about(0.5));
  CHECK(regret({{{1, 40}, {false}}, {{2, 20}, {true, true}}, {{3, 10}, {true, true}}}) == about(1));
}

TEST_CASE("scores: balanced accuracy weighs both outcomes alike") {
  Verdicts verdicts;
  for (int i = 0; i < 98; ++i)
    verdicts.add({true}, true);
  CHECK_FALSE(verdicts.balanced_accuracy());
  verdicts.add({true, true}, false);
  CHECK(verdicts.balanced_accuracy() == 0.5);  // always "fits": a coin, although 98 of 99 are right
  verdicts.add({false}, false);
  verdicts.add({false}, true);
  verdicts.add({false}, true);
  CHECK(verdicts.foreseen == 1);
  CHECK(verdicts.missed == 1);
  CHECK(verdicts.false_alarms == 2);
  CHECK(verdicts.tight_missed == 1);
  CHECK(verdicts.tight_ran == 0);
  CHECK(verdicts.balanced_accuracy().value() == about((0.5 + 0.98) / 2));
}

}  // namespace
}  // namespace trainyard::validation
