// The program in process: what main() does with a command, its streams caught.
#pragma once

#include <string>

#include "cli/commands/execute.h"

namespace trainyard::fuzz {

struct Ran {
  int code = 0;
  std::string out, err;
  double cpu_seconds = 0;
};

// Requires: in a child (tests/fuzz/child.h), whose standard error is a file in memory.
Ran ran(const cli::Command& command);

}  // namespace trainyard::fuzz
