// Compression and base64 for files that must be the same bytes for the same input.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::report {

// A .gz member without name or time (RFC 1952), operating system "unknown".
std::string gzip(std::string_view bytes);

// Raw deflate (RFC 1951), what DecompressionStream("deflate-raw") reads.
std::string deflate_raw(std::string_view bytes);

std::string base64(std::string_view bytes);

}  // namespace trainyard::report
