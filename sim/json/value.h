// A JSON document as a tree in which every value and every key knows where it was written.
//
// Numbers keep their source text, so that 9007199254740993 stays what the file says and 2^64 is
// noticed instead of rounded. Objects keep the order of their members.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/base/units.h"

namespace trainyard::json {

enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

std::string_view name(Kind kind);  // "null", "true or false", "a number", ...

// Where a value or a key stands. The file's name is shared by all values of the file.
struct Place {
  std::shared_ptr<const std::string> file;
  int line = 0;
  int column = 0;
  Position position() const { return {file ? *file : "", line, column}; }
};

Place place_of(std::string file);  // no line: a value that was made, e.g. by --set

struct Member;

struct Value {
  // Defined where Member is complete.
  Value() noexcept;
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();

  Kind kind = Kind::null;
  bool boolean = false;
  bool refused = false;         // reported as wrong already; readers do not look into it
  std::string text;             // of a string: its value; of a number: its source
  std::vector<Value> items;     // of an array
  std::vector<Member> members;  // of an object, in file order, keys distinct
  Place at;

  bool is(Kind other) const { return kind == other; }
  const Value* find(std::string_view key) const;  // null if not an object or without that key
  Value* find(std::string_view key);
  const Member* find_member(std::string_view key) const;

  // Adds or replaces a member. Requires: an object.
  Value& set(std::string_view key, Value value);
  void erase(std::string_view key);
  Value& append(Value value);  // Requires: an array.

  static Value null();
  static Value of(bool flag);
  static Value of(std::string_view string);
  static Value of(const char* string) { return of(std::string_view(string)); }
  static Value of(std::int64_t number);
  static Value of(int number) { return of(static_cast<std::int64_t>(number)); }
  static Value of_name(std::string_view name);  // of a choice: a string, but true and false
  static Value of(double number);  // Requires: finite. Shortest text that reads back equal.
  static Value array();
  static Value object();
};

struct Member {
  std::string key;
  Place at;  // of the key
  Value value;
};

// Equal as JSON values; positions and the order of members do not count, numbers compare by text.
bool same(const Value& a, const Value& b);

// A number's value. Nothing if the value is not a number or (integers) not a whole number in range:
// 8.0 and 1e3 are whole.
std::optional<std::int64_t> find_integer(const Value& value);
std::optional<std::uint64_t> find_unsigned(const Value& value);
std::optional<double> find_number(const Value& value);

// RFC 7396: objects merge member by member, null removes, everything else replaces. Merged values
// keep the position at which they were written.
void merge_patch(Value& target, const Value& patch);

// RFC 6901.
std::string escape_pointer(std::string_view key);  // one token
std::vector<std::string> split_pointer(std::string_view pointer);
const Value* find(const Value& root, std::string_view pointer);
// Sets the value at a pointer, making objects on the way; false if an array index is out of range
// or a scalar stands in the way.
bool set(Value& root, std::string_view pointer, Value value);

// Deterministic text. indent < 0: one line. Arrays of scalars, and objects of scalars in an array
// (the rows of a table), stay on one line where they fit.
std::string to_text(const Value& value, int indent = 2);

}  // namespace trainyard::json
