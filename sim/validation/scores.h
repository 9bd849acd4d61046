// How good predictions are, as numbers. Pure functions over pairs of what was predicted and what
// was measured; errors are predicted / measured - 1, so a negative bias is a prediction too fast.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace trainyard::validation {

// One number in one unit. Requires: both positive.
struct Pair {
  double predicted = 0, measured = 0;
};

double error_of(const Pair& pair);

// Of the errors' sizes, but for the bias, which is the mean of the errors with their signs.
struct ErrorScore {
  std::size_t count = 0;
  double mape = 0;
  double median = 0;  // of an even count the mean of the two in the middle
  double p90 = 0;     // the least size that nine of ten do not exceed
  double most = 0;
  double bias = 0;
};

// Nothing of no pairs.
std::optional<ErrorScore> score_errors(std::span<const Pair> pairs);

// Of several sources: the means of their scores, each counting as its pairs do, but at most as
// `most_of_source` of them, so that no large source decides alone; all pairs are counted, and
// `most` is the largest. Nothing of no scores.
std::optional<ErrorScore> score_sources(std::span<const ErrorScore> scores,
                                        std::size_t most_of_source = 100);

// Spearman's: the correlation of the ranks, equal values sharing the mean of theirs. Nothing of
// fewer than three pairs, or where all predictions or all measurements are equal.
std::optional<double> rank_correlation(std::span<const Pair> pairs);

// By how much the alternative that is predicted to be the fastest of a choice was slower than the
// fastest: 0 is the best pick.
struct Regret {
  std::size_t choices = 0;
  double mean = 0, most = 0;
};

// What was said of a step's memory.
struct SaidToFit {
  bool fits = true;
  bool is_tight = false;  // as of MemoryReport
};

struct Alternative {
  Pair time;
  SaidToFit said = {};
};

// Each item holds the alternatives of one choice; those of fewer than two are no choice. What is
// said not to fit is not picked where something fits, nor what is tight where something is not. Of
// equal predictions the first is picked. Nothing without a choice.
std::optional<Regret> pick_regret(std::span<const std::vector<Alternative>> choices);

// Whether steps fit in memory, as said and as seen.
struct Verdicts {
  std::size_t foreseen = 0;      // out of memory, and said so
  std::size_t missed = 0;        // out of memory, and said to fit
  std::size_t false_alarms = 0;  // ran, and said not to fit
  std::size_t ran = 0;           // and said to fit
  // Of `ran` and of `missed`, those that were said to be tight.
  std::size_t tight_ran = 0, tight_missed = 0;

  void add(const SaidToFit& said, bool measured_fits);

  // The mean of the shares of both kinds that were told rightly: 0.5 is a coin. Nothing where
  // either kind is missing.
  std::optional<double> balanced_accuracy() const;
};

}  // namespace trainyard::validation
