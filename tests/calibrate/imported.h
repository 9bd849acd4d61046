// What an import said.
#pragma once

#include <string>

#include "calibrate/import/import.h"

namespace trainyard::test {

// All diagnostics, a line each.
inline std::string messages(const imports::Imported& imported) {
  std::string text;
  for (const Diagnostic& diagnostic : imported.diagnostics)
    text += to_text(diagnostic) + "\n";
  return text;
}

}  // namespace trainyard::test
