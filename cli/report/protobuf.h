// The four wire forms of Protocol Buffers that a trace needs.
// Source: protobuf.dev, "Encoding".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/base/check.h"

namespace trainyard::report {

// Protocol Buffers of any size.
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
      out_.push_back(static_cast<char>((value >> shift) & 0xFF));
  }
  void bytes(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    out_.append(value);
  }
  void message(int field, const ProtoWriter& inner) { bytes(field, inner.data()); }
  std::string_view data() const { return out_; }
  void clear() { out_.clear(); }

 private:
  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    out_.push_back(static_cast<char>(value));
  }

  std::string out_;
};

// One message that never leaves the stack, with those inside it: what describes one event has no
// names, so a bound, and every length in it is a byte.
class EventWriter {
 public:
  std::string_view data() const { return {bytes_.data(), size_}; }
  std::size_t size() const { return size_; }
  // The message of this field is open until close() of what is returned. `more` of its bytes are
  // not in this writer but follow it.
  std::size_t open(int field) {
    need(kLongestTag + 1);
    tag(field, 2);
    return ++size_;
  }
  void close(std::size_t message, std::size_t more = 0) {
    const std::size_t length = size_ - message + more;
    TRAINYARD_CHECK(length < 0x80, "an event of {} bytes", length);
    bytes_[message - 1] = static_cast<char>(length);
  }
  void number(int field, std::uint64_t value) {
    need(kLongestTag + kLongestNumber);
    tag(field, 0);
    varint(value);
  }
  // The two parts of a number.
  void key(int field) {
    need(kLongestTag);
    tag(field, 0);
  }
  void value(std::uint64_t value) {
    need(kLongestNumber);
    varint(value);
  }
  void fixed64(int field, std::uint64_t value) {
    need(kLongestTag + 8);
    tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8)
      bytes_[size_++] = static_cast<char>((value >> shift) & 0xFF);
  }
  void bytes(int field, std::string_view value) {
    const std::size_t message = open(field);
    need(value.size());
    std::memcpy(bytes_.data() + size_, value.data(), value.size());
    size_ += value.size();
    close(message);
  }

 private:
  static constexpr std::size_t kLongestTag = 5, kLongestNumber = 10;

  void need(std::size_t bytes) const {
    TRAINYARD_CHECK(bytes <= bytes_.size() - size_, "an event of more than {} bytes",
                    bytes_.size());
  }
  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes_[size_++] = static_cast<char>((value & 0x7F) | 0x80);
    bytes_[size_++] = static_cast<char>(value);
  }

  std::array<char, 128> bytes_;
  std::size_t size_ = 0;
};

}  // namespace trainyard::report
