#include "sim/base/text.h"

#include <doctest/doctest.h>

#include <array>

#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("a slip of the keyboard is suggested, a different word is not") {
  constexpr std::array<std::string_view, 3> kKnown = {"bucket_size", "overlap_backward", "kind"};
  CHECK(find_nearest("bucket_sise", kKnown) == "bucket_size");
  CHECK_FALSE(find_nearest("zzz", kKnown).has_value());
}

TEST_CASE("names that are equally near are all suggested") {
  constexpr std::array<std::string_view, 4> kKnown = {"false", "fa1", "fa2", "fa3"};
  CHECK(find_all_nearest("fa4", kKnown) == std::vector<std::string_view>{"fa1", "fa2", "fa3"});
  CHECK(find_all_nearest("fa2", kKnown) == std::vector<std::string_view>{"fa2"});
  CHECK(find_all_nearest("cudnn", kKnown).empty());
}

TEST_CASE("a name that is a word of another is its part, a piece of a word is none") {
  constexpr std::array<std::string_view, 3> kKnown = {"heads", "kv_heads", "head"};
  CHECK(find_part("num_heads", kKnown) == "heads");
  CHECK(find_part("num_kv_heads", kKnown) == "kv_heads");
  CHECK_FALSE(find_part("headsize", kKnown).has_value());
}

TEST_CASE("no text of a file can drive a terminal") {
  CHECK(escape_control("a\x1b[31mb\n") == "a\\x1b[31mb\\x0a");
  CHECK(escape_control("caf\xC3\xA9") == "caf\xC3\xA9");
  CHECK(escape_control("\xE2\x80\xAEx") == "\\xe2\\x80\\xaex");
}

TEST_CASE("numbers for people have three digits and a unit") {
  CHECK(to_text(Duration(1'420'000'000'000)) == "1.42 s");
  CHECK(to_text(Duration(35'100'000'000)) == "35.1 ms");
  CHECK(to_text(Duration(0)) == "0 s");
  CHECK(to_text(Bytes(std::int64_t{80} << 30)) == "80.0 GiB");
}
