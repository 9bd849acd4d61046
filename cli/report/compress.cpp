#include "cli/report/compress.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "sim/base/check.h"

namespace trainyard::report {
namespace {

constexpr int kRaw = -MAX_WBITS;
constexpr int kGzip = MAX_WBITS + 16;
constexpr int kUnknownSystem = 255;
// A trace is large and stays on the machine; a report is sent to others.
constexpr int kFast = 1, kSmall = 6;

std::string deflate_as(std::string_view bytes, int window_bits, int level) {
  z_stream stream{};
  int status = deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  TRAINYARD_CHECK(status == Z_OK, "deflateInit2: {}", status);
  gz_header header{};
  header.os = kUnknownSystem;
  if (window_bits == kGzip) deflateSetHeader(&stream, &header);
  std::string out;
  std::string block(std::size_t{1} << 16, '\0');
  // zlib counts in unsigned int, so larger inputs are fed in pieces.
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  do {
    const std::size_t piece = std::min(bytes.size(), kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(piece);
    bytes.remove_prefix(piece);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(block.data());
      stream.avail_out = static_cast<uInt>(block.size());
      status = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
      TRAINYARD_CHECK(status != Z_STREAM_ERROR, "deflate: {}", status);
      out.append(block, 0, block.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (!bytes.empty());
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::string gzip(std::string_view bytes) {
  return deflate_as(bytes, kGzip, kFast);
}

std::string deflate_raw(std::string_view bytes) {
  return deflate_as(bytes, kRaw, kSmall);
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) {
      return k < bytes.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[k]))
                              : 0U;
    };
    const std::uint32_t word = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (std::size_t k = 0; k < 4; ++k) {
      const bool padding = i + k > bytes.size();
      out += padding ? '=' : kDigits[(word >> (18 - 6 * k)) & 63];
    }
  }
  return out;
}

}  // namespace trainyard::report
