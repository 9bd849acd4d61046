#include "cli/report/compress.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <string>

#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::string inflate_as(const std::string& bytes, int window_bits) {
  z_stream stream{};
  REQUIRE(inflateInit2(&stream, window_bits) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out(std::size_t{1} << 22, '\0');
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  inflateEnd(&stream);
  return out.substr(0, stream.total_out);
}

std::string sample() {
  std::string text;
  for (int i = 0; i < 200'000; ++i)
    text += static_cast<char>(i % 251 * (i % 97));
  return text;
}

}  // namespace

TEST_CASE("what is compressed comes back") {
  for (const std::string& text : {std::string(), std::string("a"), sample()}) {
    CHECK(inflate_as(gzip(text), MAX_WBITS + 16) == text);
    CHECK(inflate_as(deflate_raw(text), -MAX_WBITS) == text);
  }
}

TEST_CASE("a gzip header holds no time and no operating system") {
  const std::string bytes = gzip("trace");
  CHECK(bytes.substr(0, 4) == std::string("\x1f\x8b\x08\0", 4));
  CHECK(bytes.substr(4, 4) == std::string(4, '\0'));
  CHECK(static_cast<unsigned char>(bytes[9]) == 255);
}

TEST_CASE("base64 agrees with the test vectors of RFC 4648") {
  CHECK(base64("") == "");
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foo") == "Zm9v");
  CHECK(base64("foob") == "Zm9vYg==");
  CHECK(base64("fooba") == "Zm9vYmE=");
  CHECK(base64("foobar") == "Zm9vYmFy");
  CHECK(base64("\xff\xfe\xfd") == "//79");
}
