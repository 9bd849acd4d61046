// Many plans, each in a process of its own, and what is found in them made small.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace trainyard::fuzz {

struct Campaign {
  std::uint64_t first_seed = 1;
  int seeds = 100;
  int jobs = 1;
  bool shrink = true;
  bool reasons = false;  // say why plans were refused
  std::string keep;      // folder for the scenarios of findings; empty: none
  std::string plans;     // folder for all plans that the reader accepts; empty: none
};

// What a campaign takes.
struct Clock {
  double all = 0, most = 0;  // seconds of CPU
  std::uint64_t slowest = 0;
  void add(std::uint64_t seed, double seconds) {
    all += seconds;
    if (seconds > most) slowest = seed;
    most = std::max(most, seconds);
  }
};

// Says on standard error, every thousand seeds, how far a campaign has come: one that is broken off
// can be taken up there.
inline void tell_progress(const Campaign& campaign, int done, int findings) {
  if (done % 1000 != 0 || done == campaign.seeds) return;
  fmt::print(stderr, "{} of {} seeds, up to {}; {} findings\n", done, campaign.seeds,
             campaign.first_seed + static_cast<std::uint64_t>(done) - 1, findings);
}

// Returns the number of findings; says what it does on standard output.
int run_plans(const Campaign& campaign);

// The same of damaged files: scenarios, profiles, network descriptions, samples and logs.
int run_damaged(const Campaign& campaign);

// Pointers of all keys that so many plans have, sorted.
void print_keys(int plans);

// The scenario files of a folder, or one; each must hold, or be refused with its reason.
int replay(const std::string& path);

}  // namespace trainyard::fuzz
