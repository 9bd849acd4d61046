// Lines of samples.jsonl: one JSON object per measurement (docs/samples.md). Needs no CUDA.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trainyard::probe {

// What a measurement came to. Times are microseconds of one operation.
struct Timing {
  double median_us = 0;
  double spread = 0;  // (third - first quartile) / median
  int repeats = 0;
};

// Median and quartiles (linear between neighbours) of at least one time.
Timing summarize(std::vector<double> times_us);

// One object, written key by key in the order of the calls.
class Sample {
 public:
  explicit Sample(std::string_view kind);

  Sample& text(std::string_view key, std::string_view value);
  Sample& flag(std::string_view key, bool value);
  // A number that is not finite is left out: JSON has none, and a wrong 0 would be fitted.
  Sample& number(std::string_view key, double value);
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  Sample& number(std::string_view key, Integer value) {
    return json(key, std::to_string(value));
  }
  Sample& json(std::string_view key, std::string_view value);  // `value` is JSON already
  Sample& timing(const Timing& timing);                        // time_us, spread, repeats

  std::string line() const;  // with its line break

 private:
  std::string body_;
};

std::string json_text(std::string_view text);  // with quotes, escaped
std::string json_number(double value);         // the shortest text that reads back equal

// The file that samples are appended to. Each line is written by one call and not buffered, so
// that an interrupt keeps what was measured. A line that an earlier run was cut off in is removed.
class SampleFile {
 public:
  explicit SampleFile(const std::string& path);  // "-": standard output; throws std::runtime_error
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  void write(const Sample& sample);  // throws std::runtime_error
  int written() const { return written_; }

 private:
  void remove_cut_off_line();

  std::string path_;
  int file_ = -1;
  bool owned_ = true;
  int written_ = 0;
};

}  // namespace trainyard::probe
