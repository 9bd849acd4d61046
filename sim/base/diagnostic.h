// What is wrong with a file, said so that its author can fix it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainyard {

struct Position {
  std::string file;  // as the user wrote it; "--set" or "default" where no file holds the value
  int line = 0;      // 1-based; 0 where there is no line
  int column = 0;    // 1-based
};

enum class Severity : std::uint8_t { warning, error };

struct Diagnostic {
  Severity severity = Severity::error;
  Position at;
  std::string pointer;  // RFC 6901, e.g. "/parallelism/tp"; empty for the file itself
  std::string message;
  std::string hint;       // the cure, e.g. "did you mean 'bucket_size'?"; may be empty
  bool harmless = false;  // all values were read all the same (an unknown key): go on looking
};

// "file:line:col: error: /pointer: message; hint", control bytes of user strings escaped.
std::string to_text(const Diagnostic& diagnostic);

// Carries every problem found, not the first one. Thrown once, at the end of reading.
class ScenarioError : public std::runtime_error {
 public:
  explicit ScenarioError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

}  // namespace trainyard
