// Random plans: scenarios over the whole schema, most of which the reader accepts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/json/value.h"

namespace trainyard::fuzz {

struct Plan {
  json::Value scenario;
  std::vector<std::pair<std::string, std::string>> files;  // beside it: name, content
};

// The plan of a seed; further attempts are what is drawn where the reader refused the ones before.
Plan draw_plan(std::uint64_t seed, int attempt);

}  // namespace trainyard::fuzz
