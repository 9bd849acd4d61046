// The four wire forms of Protocol Buffers that a trace needs.
// Source: protobuf.dev, "Encoding".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::report {

// Bytes that never leave the stack: what describes one event has no names, so a bound.
class EventBytes {
 public:
  // Requires: need() of as many bytes.
  void push_back(char c) { bytes_[size_++] = c; }
  void need(std::size_t bytes) const {
    TRAINYARD_CHECK(bytes <= bytes_.size() - size_, "an event of more than {} bytes",
                    bytes_.size());
  }
  void append(std::string_view text) {
    need(text.size());
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void clear() { size_ = 0; }
  std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 256> bytes_;
  std::size_t size_ = 0;
};

// `Store` is std::string or EventBytes.
template <class Store>
class BasicProtoWriter {
 public:
  void number(int field, std::uint64_t value) {
    need(kLongestTag + kLongestNumber);
    tag(field, 0);
    varint(value);
  }
  void number(int field, std::int64_t value) { number(field, static_cast<std::uint64_t>(value)); }
  void number(int field, int value) { number(field, static_cast<std::int64_t>(value)); }
  void fixed64(int field, std::uint64_t value) {
    need(kLongestTag + 8);
    tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8)
      out_.push_back(static_cast<char>((value >> shift) & 0xFF));
  }
  void bytes(int field, std::string_view value) {
    need(kLongestTag + kLongestNumber);
    tag(field, 2);
    varint(value.size());
    out_.append(value);
  }
  template <class Inner>
  void message(int field, const BasicProtoWriter<Inner>& inner) {
    bytes(field, inner.data());
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  std::string_view data() const {
    if constexpr (std::is_same_v<Store, std::string>)
      return out_;
    else
      return out_.view();
  }
  // What was written, moved out of the writer, which is empty after it.
  Store take() { return std::exchange(out_, {}); }
  void clear() { out_.clear(); }
  void reserve(std::size_t bytes) { out_.reserve(bytes); }

 private:
  static constexpr std::size_t kLongestTag = 5, kLongestNumber = 10;
  void need(std::size_t bytes) const {
    if constexpr (!std::is_same_v<Store, std::string>) out_.need(bytes);
  }
  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  Store out_;
};

using ProtoWriter = BasicProtoWriter<std::string>;
using EventWriter = BasicProtoWriter<EventBytes>;

}  // namespace trainyard::report
