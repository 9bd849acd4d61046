// What both programs simulate: every host sends to every other at time 0, each a size of its own.
//
//   star: each host has a link up and one down.
//   fat:  the same, 16 hosts under a leaf and 8 spines above, the route by the destination.
//
// Links have 12.5 GB/s and 1 us.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace trainyard::all_to_all {

constexpr int kHostsOfLeaf = 16;
constexpr int kSpines = 8;
constexpr int kLeastHosts = 64;  // from four leaves on SimGrid's routes are these
constexpr std::int64_t kBandwidth = 12'500'000'000;

struct Arguments {
  int hosts;
  bool fat;
};

// "fat" or "star", and a multiple of 16 hosts, at least 64.
inline Arguments arguments(int count, char** words) {
  const int hosts = count == 3 ? std::atoi(words[2]) : 0;
  const bool fat = count == 3 && std::string_view(words[1]) == "fat";
  if (hosts < kLeastHosts || hosts % kHostsOfLeaf != 0 ||
      (!fat && std::string_view(words[1]) != "star"))
    std::exit(2);
  return {hosts, fat};
}

// From half a megabyte to one and a half, pair by pair.
class Sizes {
 public:
  std::int64_t next() { return 500'000 + static_cast<std::int64_t>(random_() % 1'000'000); }

 private:
  std::mt19937_64 random_{1};
};

}  // namespace trainyard::all_to_all
