#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/exit_code.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kRed = "\x1b[1;31m", kYellow = "\x1b[1;33m",
                           kReset = "\x1b[0m", kEraseLine = "\r\x1b[K";

std::string_view environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Returns 0 or the errno of the write that failed.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

bool wants_color(ColorMode mode, int descriptor) {
  if (mode != ColorMode::automatic) return mode == ColorMode::always;
  return environment("NO_COLOR").empty() && environment("TERM") != "dumb" &&
         ::isatty(descriptor) == 1;
}

}  // namespace

ColorMode color_mode(std::string_view name) {
  if (name == "always") return ColorMode::always;
  return name == "never" ? ColorMode::never : ColorMode::automatic;
}

Console::Console(ColorMode color, bool quiet)
    : quiet_(quiet),
      color_results_(wants_color(color, STDOUT_FILENO)),
      color_errors_(wants_color(color, STDERR_FILENO)),
      live_(!quiet && environment("TERM") != "dumb" && ::isatty(STDERR_FILENO) == 1) {}

void Console::result(std::string_view text) {
  end_progress();
  const int error = write_all(STDOUT_FILENO, text);
  if (error == 0 || error == EPIPE) return;
  throw EnvironmentError(fmt::format("standard output: {}", std::strerror(error)));
}

void Console::line(std::string_view text) {
  const std::string whole =
      fmt::format("{}{}\n", progress_shown_ ? kEraseLine : std::string_view(), text);
  progress_shown_ = false;
  write_all(STDERR_FILENO, whole);  // There is nowhere left to report a failure to.
}

std::string Console::styled(std::string_view text, std::string_view style) const {
  return color_errors_ ? fmt::format("{}{}{}", style, text, kReset) : std::string(text);
}

void Console::note(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!quiet_) line(fmt::format("trainyard: {}", text));
}

void Console::error(std::string_view text) {
  const std::lock_guard lock(mutex_);
  line(fmt::format("trainyard: {} {}", styled("error:", kRed), text));
}

void Console::diagnostics(const std::vector<Diagnostic>& list) {
  const std::lock_guard lock(mutex_);
  for (const Diagnostic& diagnostic : list) {
    const bool is_error = diagnostic.severity == Severity::error;
    if (quiet_ && !is_error) continue;
    std::string text = to_text(diagnostic);
    const std::string_view word = is_error ? "error:" : "warning:";
    const std::size_t at = text.find(word);
    if (at != std::string::npos)
      text.replace(at, word.size(), styled(word, is_error ? kRed : kYellow));
    line(text);
  }
}

void Console::progress(std::string_view text) {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  write_all(STDERR_FILENO, fmt::format("{}{}", kEraseLine, styled(text, kBold)));
  progress_shown_ = true;
}

void Console::end_progress() {
  const std::lock_guard lock(mutex_);
  if (progress_shown_) write_all(STDERR_FILENO, kEraseLine);
  progress_shown_ = false;
}

void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Standard input is given a stream that cannot be read, the
    // others one that cannot be written.
    [[maybe_unused]] const int opened = ::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace trainyard::cli
