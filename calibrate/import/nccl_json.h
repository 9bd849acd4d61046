// The file that option -J of nccl-tests writes.
#pragma once

#include <string>
#include <string_view>

#include "calibrate/import/import.h"

namespace trainyard::imports {

void read_nccl_json(std::string_view text, const std::string& file, const ImportOptions& options,
                    Imported& imported);

}  // namespace trainyard::imports
