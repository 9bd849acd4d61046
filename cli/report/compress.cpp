#include "cli/report/compress.h"

#include <libdeflate.h>

#include <cstdint>
#include <memory>

#include "sim/base/check.h"

namespace trainyard::report {
namespace {

// A trace is large and stays on the machine; a report is sent to others.
constexpr int kFast = 1, kSmall = 4;

using Compressor = std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)>;

// `bound` and `compress` are libdeflate's functions of one format.
template <class Bound, class Compress>
std::string compressed(std::string_view bytes, int level, const Bound& bound,
                       const Compress& compress) {
  const Compressor compressor(libdeflate_alloc_compressor(level), libdeflate_free_compressor);
  TRAINYARD_CHECK(compressor != nullptr, "no compressor of level {}", level);
  // Nobody touches what the bound promises and the result leaves over.
  const std::size_t room = bound(compressor.get(), bytes.size());
  const auto out = std::make_unique_for_overwrite<char[]>(room);
  const std::size_t size = compress(compressor.get(), bytes.data(), bytes.size(), out.get(), room);
  TRAINYARD_CHECK(size > 0, "{} bytes do not fit into {}", bytes.size(), room);
  return std::string(out.get(), size);
}

}  // namespace

std::string gzip(std::string_view bytes) {
  return compressed(bytes, kFast, libdeflate_gzip_compress_bound, libdeflate_gzip_compress);
}

std::string deflate_raw(std::string_view bytes) {
  return compressed(bytes, kSmall, libdeflate_deflate_compress_bound, libdeflate_deflate_compress);
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
