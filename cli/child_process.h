// The one program that trainyard starts: the probe, which needs CUDA where trainyard does not.
#pragma once

#include <string>
#include <vector>

#include "cli/interrupts.h"

namespace trainyard::cli {

// Beside this program, else in PATH; empty if it is in neither.
std::string find_program(const std::string& name);

struct ChildEnd {
  int code = 0;    // its exit code
  int signal = 0;  // what killed it; 0: it ended by itself
};

// Runs a program with our standard streams to its end. A signal that would end us is passed on to
// it, and we end after it. Throws EnvironmentError if it cannot be started.
ChildEnd run_program(const std::string& path, const std::vector<std::string>& arguments,
                     Interrupts& interrupts);

}  // namespace trainyard::cli
