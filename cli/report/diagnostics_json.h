// Diagnostics for programs that read --json.
#pragma once

#include <string>
#include <vector>

#include "sim/base/diagnostic.h"

namespace trainyard::report {

// {"trainyard": VERSION, "errors": [{"severity", "file", "line", "column", "pointer", "message",
// "hint"}]}: what a command prints instead of its result. Keys that say nothing are left out.
std::string errors_json(const std::vector<Diagnostic>& list);

struct CheckedFile {
  std::string path;
  bool ok = true;
  std::vector<Diagnostic> diagnostics;
};
// {"trainyard": VERSION, "files": [{"file", "ok", "diagnostics": as above}]}.
std::string checked_json(const std::vector<CheckedFile>& files);

}  // namespace trainyard::report
