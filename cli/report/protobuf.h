// The four wire forms of Protocol Buffers that a trace needs.
// Source: protobuf.dev, "Encoding".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::report {

class ProtoWriter {
 public:
  void number(int field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
  }
  void number(int field, std::int64_t value) { number(field, static_cast<std::uint64_t>(value)); }
  void number(int field, int value) { number(field, static_cast<std::int64_t>(value)); }
  void fixed64(int field, std::uint64_t value) {
    tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8)
      out_ += static_cast<char>((value >> shift) & 0xFF);
  }
  void bytes(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    out_ += value;
  }
  void message(int field, const ProtoWriter& inner) { bytes(field, inner.out_); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out_ += static_cast<char>((value & 0x7F) | 0x80);
    out_ += static_cast<char>(value);
  }
  const std::string& data() const { return out_; }
  void clear() { out_.clear(); }

 private:
  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  std::string out_;
};

}  // namespace trainyard::report
