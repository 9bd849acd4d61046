// What must hold of every plan that the reader accepts.
#pragma once

#include <string>

namespace trainyard::fuzz {

struct Finding {
  std::string invariant;  // what does not hold: "fold", "exit code 70: placement.cpp:44"
  std::string detail;
};

enum class Verdict { held, refused, broken };

struct Examined {
  Verdict verdict = Verdict::held;
  bool fits = true;
  Finding finding;  // if it is broken; of a refused plan, the reason as detail
};

// Runs the scenario file by every invariant. Requires: the working folder is the file's, and may be
// written into.
Examined examine(const std::string& path);

}  // namespace trainyard::fuzz
