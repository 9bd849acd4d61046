// Checks that several families of networks share.
#pragma once

#include <cstdint>

#include "models/families/network.h"

namespace trainyard::models {

void must_be_positive(Problems& problems, const char* member, const char* what, std::int64_t value);

// ... by the tensor-parallel degree `degree`.
void must_divide(Problems& problems, const char* member, const char* what, std::int64_t value,
                 std::int64_t degree);

}  // namespace trainyard::models
