// Random plans and damaged files against the program. CONTRIBUTING.md, "Fuzzing".
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/fuzz/campaign.h"

namespace {

constexpr const char* kUsage =
    "usage: fuzz [--mutate] N [--seed S] [--jobs J] [--no-shrink] [--reasons] [--keep DIR] "
    "[--plans DIR]\n"
    "       fuzz --replay FILE|DIR\n"
    "       fuzz --keys N\n";

int wrong_usage() {
  fmt::print(stderr, "{}", kUsage);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  trainyard::fuzz::Campaign campaign;
  campaign.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool counted = false, damages = false;
  ::setenv("TRAINYARD_CONFIGS", TRAINYARD_SOURCE_DIR "/configs", 0);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--replay" && has_value) return trainyard::fuzz::replay(argv[i + 1]) == 0 ? 0 : 1;
    if (word == "--keys" && has_value)
      return trainyard::fuzz::print_keys(std::atoi(argv[i + 1])), 0;
    if (word == "--no-shrink")
      campaign.shrink = false;
    else if (word == "--mutate")
      damages = true;
    else if (word == "--reasons")
      campaign.reasons = true;
    else if (word == "--seed" && has_value)
      campaign.first_seed = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--jobs" && has_value)
      campaign.jobs = std::max(1, std::atoi(argv[++i]));
    else if (word == "--plans" && has_value)
      campaign.plans = argv[++i];
    else if (word == "--keep" && has_value)
      campaign.keep = argv[++i];
    else if (!counted && std::atoi(argv[i]) > 0)
      campaign.seeds = std::atoi(argv[i]), counted = true;
    else
      return wrong_usage();
  }
  if (!counted) return wrong_usage();
  const int findings =
      damages ? trainyard::fuzz::run_damaged(campaign) : trainyard::fuzz::run_plans(campaign);
  return findings == 0 ? 0 : 1;
}
