#include "sim/json/quantity.h"

#include <doctest/doctest.h>

#include <clocale>

#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::json;

TEST_CASE("sizes are whole bytes, exactly") {
  CHECK(parse_bytes("25MiB").value == Bytes(std::int64_t{25} << 20));
  CHECK(parse_bytes("80 GB").value == Bytes(80'000'000'000));
  CHECK(parse_bytes("1.5KiB").value == Bytes(1536));
  CHECK(parse_bytes("0.001KB").value == Bytes(1));
  CHECK(parse_bytes("9223372036854775807B").value == Bytes(9223372036854775807));
  CHECK(parse_bytes("0B").value == Bytes(0));
  CHECK(parse_bytes("9223372036854775808B").problem == "\"9223372036854775808B\" is too large");
  CHECK(parse_bytes("9e15TiB").problem == "\"9e15TiB\" is too large");
  CHECK(parse_bytes("1.5B").problem == "\"1.5B\" is not a whole number of bytes");
}

TEST_CASE("times are whole picoseconds") {
  CHECK(parse_duration("1.5us").value == Duration(1'500'000));
  CHECK(parse_duration("0.1ns").value == Duration(100));
  CHECK(parse_duration("30min").value == Duration(1'800'000'000'000'000));
  CHECK(parse_duration("54d").value == Duration(4'665'600'000'000'000'000));
  CHECK(parse_duration("0.0001ns").problem == "\"0.0001ns\" is not a whole number of picoseconds");
  CHECK(parse_seconds("4.5us").value == Seconds(4.5e-6));
}

TEST_CASE("a small b is bits, a capital B is bytes, and both are exact") {
  CHECK(parse_bandwidth("400Gbps").value == BytesPerSecond(50e9));
  CHECK(parse_bandwidth("50GB/s").value == BytesPerSecond(50e9));
  CHECK(parse_bandwidth("22.4GB/s").value == BytesPerSecond(22.4e9));
  CHECK(parse_bandwidth("3.35 TB/s").value == BytesPerSecond(3.35e12));
  CHECK(parse_bandwidth("1GiB/s").value == BytesPerSecond(0x1p30));
  CHECK(parse_bandwidth("2e3Mbit/s").value == BytesPerSecond(0.25e9));
  CHECK(parse_compute_rate("312TFLOP/s").value == FlopsPerSecond(312e12));
  CHECK(parse_power("0.7kW").value == Watts(700));
  CHECK(!parse_power("700").ok());
}

TEST_CASE("a wrong unit is answered with the right one") {
  CHECK(parse_bandwidth("400G").problem ==
        "\"400G\" may be \"400Gbps\" (bits) or \"400GB/s\" (bytes); write one");
  CHECK(parse_bytes("80G").problem ==
        "\"80G\" may be \"80GB\" (powers of 1000) or \"80GiB\" (powers of 1024); write one");
  const std::vector<std::pair<std::string, std::string>> cures = {
      {"gb/s", R"("50GB/s" or "50Gbps")"},
      {"GBPS", R"("50GB/s" or "50Gbps")"},
      {"gbps", R"("50Gbps")"},
      {"Gb/s", R"("50Gbps")"},
      {"GBps", R"("50GB/s")"},
      {"Gib/s", R"("50GiB/s")"},
      {"GBIT/S", R"("50Gbit/s")"}};
  for (const auto& [unit, cure] : cures)
    CHECK(parse_bandwidth("50" + unit).problem ==
          '"' + unit + "\" is not a unit (capitals count); write " + cure);
  CHECK(parse_bandwidth("400").problem == "\"400\" has no unit; write \"400Gbps\" or \"50GB/s\"");
  CHECK(parse_duration("5 parsecs").problem ==
        "\"parsecs\" is not a unit of time; write e.g. \"1.5us\" or \"30min\"");
  CHECK(parse_duration("-5us").problem == "\"-5us\" is negative");
  CHECK(parse_bytes("fast").problem ==
        "expected a size such as \"25MiB\" or \"80GB\", got \"fast\"");
  CHECK(parse_bytes("1.MiB").problem ==
        "expected a size such as \"25MiB\" or \"80GB\", got \"1.MiB\"");
  CHECK(missing_unit("200", static_cast<BytesPerSecond*>(nullptr)) ==
        "200 has no unit; write \"200Gbps\" (bits) or \"200GB/s\" (bytes)");
}

TEST_CASE("a locale with a comma changes nothing") {
  const char* before = std::setlocale(LC_ALL, "de_DE.UTF-8");
  CHECK(parse_bandwidth("22.4GB/s").value == BytesPerSecond(22.4e9));
  if (before != nullptr) std::setlocale(LC_ALL, "C");
}

TEST_CASE("quantities are written so that they read back equal") {
  CHECK(quantity_text(Bytes(std::int64_t{25} << 20)) == "25MiB");
  CHECK(quantity_text(Bytes(80'000'000'000)) == "80GB");
  CHECK(quantity_text(Bytes(1500)) == "1.5KB");
  CHECK(quantity_text(Duration(1'500'000)) == "1.5us");
  CHECK(quantity_text(Duration(0)) == "0ps");
  CHECK(quantity_text(BytesPerSecond(50e9)) == "50GB/s");
  CHECK(quantity_text(FlopsPerSecond(312e12)) == "312TFLOP/s");
  CHECK(quantity_text(Watts(700)) == "700W");
  for (const std::int64_t count :
       {0LL, 1LL, 1023LL, 1024LL, 1536LL, 80'000'000'000LL, 85899345920LL, 123456789012345LL}) {
    CHECK(parse_bytes(quantity_text(Bytes(count))).value == Bytes(count));
    CHECK(parse_duration(quantity_text(Duration(count))).value == Duration(count));
  }
  CHECK(quantity_text(Seconds(5.9e-6)) == "5.9us");
  CHECK(quantity_text(Seconds(5.91234e-6)) == "5912.34ns");
  CHECK(quantity_text(Seconds(0)) == "0ps");
  for (const double value : {5.9e-6, 5.91234e-6, 4.3e-5, 1.0 / 3, 1e-30, 7e22, 0.1, 123456.789}) {
    CAPTURE(value);
    CHECK(parse_seconds(quantity_text(Seconds(value))).value == Seconds(value));
    CHECK(parse_bandwidth(quantity_text(BytesPerSecond(value))).value == BytesPerSecond(value));
  }
}
