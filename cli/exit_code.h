// What the program tells the shell, and the errors that lead there. README.md lists the codes.
#pragma once

#include <stdexcept>

namespace trainyard::cli {

enum class ExitCode : int {
  done = 0,
  infeasible = 1,     // out of memory or deadlock; of `compare`: no variant is feasible
  usage = 2,          // the command line is wrong
  invalid_input = 3,  // a file is wrong or absent
  environment = 4,    // a file cannot be written, or the machine is in the way
  internal = 70,      // a mistake of ours
};

// The command line asks for something that does not exist.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The machine does not let us do what was asked.
class EnvironmentError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace trainyard::cli
