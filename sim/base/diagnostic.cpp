#include "sim/base/diagnostic.h"

#include <fmt/format.h>

#include "sim/base/text.h"

namespace trainyard {

std::string to_text(const Diagnostic& diagnostic) {
  std::string text = escape_control(diagnostic.at.file);
  if (diagnostic.at.line > 0)
    text += fmt::format(":{}:{}", diagnostic.at.line, diagnostic.at.column);
  text += diagnostic.severity == Severity::error ? ": error: " : ": warning: ";
  if (!diagnostic.pointer.empty()) text += escape_control(diagnostic.pointer) + ": ";
  text += escape_control(diagnostic.message);
  if (!diagnostic.hint.empty()) text += "; " + escape_control(diagnostic.hint);
  return text;
}

ScenarioError::ScenarioError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error([&] {
        std::string text;
        for (const Diagnostic& diagnostic : diagnostics)
          text += to_text(diagnostic) + "\n";
        return text;
      }()),
      diagnostics_(std::move(diagnostics)) {}

}  // namespace trainyard
