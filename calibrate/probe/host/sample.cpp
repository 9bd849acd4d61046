#include "sample.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace trainyard::probe {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = place - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::runtime_error(path + ": " + std::strerror(error));
}

}  // namespace

Timing summarize(std::vector<double> times_us) {
  std::sort(times_us.begin(), times_us.end());
  Timing timing;
  timing.median_us = quantile(times_us, 0.5);
  timing.repeats = static_cast<int>(times_us.size());
  if (timing.median_us > 0)
    timing.spread = (quantile(times_us, 0.75) - quantile(times_us, 0.25)) / timing.median_us;
  return timing;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(byte));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// std::to_chars would say the same, but gcc 9 and 10, which many GPU servers still have, lack it
// for floating point.
std::string json_number(double value) {
  char text[40];
  if (std::fabs(value) < 1e15 && value == std::floor(value)) {
    std::snprintf(text, sizeof text, "%.0f", value);
    return text;
  }
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

Sample::Sample(std::string_view kind) {
  text("kind", kind);
}

Sample& Sample::text(std::string_view key, std::string_view value) {
  return json(key, json_text(value));
}

Sample& Sample::flag(std::string_view key, bool value) {
  return json(key, value ? "true" : "false");
}

Sample& Sample::number(std::string_view key, double value) {
  return std::isfinite(value) ? json(key, json_number(value)) : *this;
}

Sample& Sample::json(std::string_view key, std::string_view value) {
  if (!body_.empty()) body_ += ",";
  body_ += json_text(key);
  body_ += ":";
  body_ += value;
  return *this;
}

Sample& Sample::timing(const Timing& timing) {
  number("time_us", timing.median_us);
  number("spread", timing.spread);
  return number("repeats", timing.repeats);
}

std::string Sample::line() const {
  return "{" + body_ + "}\n";
}

SampleFile::SampleFile(const std::string& path) : path_(path) {
  if (path == "-") {
    path_ = "standard output";
    file_ = STDOUT_FILENO;
    owned_ = false;
    return;
  }
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0 && errno != EISDIR)  // a pipe or a terminal may be for writing only
    file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) fail(path_, errno);
  remove_cut_off_line();
}

SampleFile::~SampleFile() {
  if (owned_ && file_ >= 0) ::close(file_);
}

void SampleFile::remove_cut_off_line() {
  struct stat status = {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  off_t end = status.st_size;
  char last = 0;
  while (end > 0 && ::pread(file_, &last, 1, end - 1) == 1 && last != '\n')
    --end;
  if (end != status.st_size && ::ftruncate(file_, end) != 0) fail(path_, errno);
}

void SampleFile::write(const Sample& sample) {
  const std::string line = sample.line();
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, errno);
    done += static_cast<std::size_t>(count);
  }
  ++written_;
}

}  // namespace trainyard::probe
