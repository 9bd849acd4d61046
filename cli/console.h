// The two streams of a command: results on standard output, everything else on standard error.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostic.h"

namespace trainyard::cli {

enum class ColorMode { automatic, always, never };

// Of "auto", "always" or "never".
ColorMode color_mode(std::string_view name);

class Console {
 public:
  // Takes NO_COLOR and TERM from the environment, and whether standard error is a terminal.
  Console(ColorMode color, bool quiet);

  // Writes to standard output. A reader that has gone away (`| head`) is not an error. Throws
  // EnvironmentError if the text cannot be written for another reason.
  void result(std::string_view text);

  // One line on standard error: "trainyard: text". Not with --quiet.
  void note(std::string_view text);
  void error(std::string_view text);  // also with --quiet

  // Errors always, warnings not with --quiet.
  void diagnostics(const std::vector<Diagnostic>& list);

  // Replaces the last progress line. Only on a terminal; safe to call from several threads.
  void progress(std::string_view text);
  void end_progress();

  // True if text for standard output may be coloured.
  bool color_results() const { return color_results_; }

 private:
  std::string styled(std::string_view text, std::string_view style) const;
  void line(std::string_view text);

  bool quiet_;
  bool color_results_ = false;
  bool color_errors_ = false;
  bool live_ = false;  // progress is shown
  bool progress_shown_ = false;
  std::mutex mutex_;  // of everything that goes to standard error
};

// Makes sure that descriptors 0, 1 and 2 are open, so that no file of ours gets one of their
// numbers and is written into by mistake. Writes to a stream that was closed still fail.
void open_standard_streams();

}  // namespace trainyard::cli
