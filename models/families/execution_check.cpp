#include "models/families/execution_check.h"

#include <fmt/format.h>

namespace trainyard::models {

void must_be_positive(Problems& problems, const char* member, const char* what,
                      std::int64_t value) {
  if (value < 1) problems.push_back({member, fmt::format("{} ({}) must be positive", what, value)});
}

void must_divide(Problems& problems, const char* member, const char* what, std::int64_t value,
                 std::int64_t degree) {
  if (value % degree == 0) return;
  problems.push_back(
      {member, fmt::format("{} ({}) must be divisible by the tensor-parallel degree ({})", what,
                           value, degree)});
}

}  // namespace trainyard::models
