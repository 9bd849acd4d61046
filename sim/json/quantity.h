// Numbers with units, exactly: "25MiB", "400Gbps", "1.5us", "312TFLOP/s". Small b is bits, capital
// B is bytes; K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti powers of 1024. No locale is consulted.
#pragma once

#include <string>
#include <string_view>

#include "sim/base/units.h"

namespace trainyard::json {

// What reading a quantity gives: `problem` is empty or says what is wrong and what to write.
template <class T>
struct Parsed {
  T value{};
  std::string problem;
  bool ok() const { return problem.empty(); }
};

Parsed<Bytes> parse_bytes(std::string_view text);        // whole bytes only
Parsed<Duration> parse_duration(std::string_view text);  // whole picoseconds only
Parsed<Seconds> parse_seconds(std::string_view text);    // any decimal
Parsed<BytesPerSecond> parse_bandwidth(std::string_view text);
Parsed<FlopsPerSecond> parse_compute_rate(std::string_view text);
Parsed<Watts> parse_power(std::string_view text);

// What a bare number should have been: `200 has no unit; write "200Gbps" or "25GB/s"`.
std::string missing_unit(std::string_view number, const Bytes*);
std::string missing_unit(std::string_view number, const Duration*);
std::string missing_unit(std::string_view number, const Seconds*);
std::string missing_unit(std::string_view number, const BytesPerSecond*);
std::string missing_unit(std::string_view number, const FlopsPerSecond*);
std::string missing_unit(std::string_view number, const Watts*);

// The form that reads back as the same value, in the largest unit that is exact: "25MiB", "1.5us".
std::string quantity_text(Bytes value);
std::string quantity_text(Duration value);
std::string quantity_text(Seconds value);
std::string quantity_text(BytesPerSecond value);
std::string quantity_text(FlopsPerSecond value);
std::string quantity_text(Watts value);

// A regular expression of what is accepted, for JSON Schema.
std::string quantity_pattern(const Bytes*);
std::string quantity_pattern(const Duration*);
std::string quantity_pattern(const Seconds*);
std::string quantity_pattern(const BytesPerSecond*);
std::string quantity_pattern(const FlopsPerSecond*);
std::string quantity_pattern(const Watts*);

}  // namespace trainyard::json
