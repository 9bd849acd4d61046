// Other users of a field table: JSON Schema, the list of known keys, and the resolved values.
#pragma once

#include <string>
#include <vector>

#include "sim/json/fields.h"
#include "sim/json/reader.h"
#include "sim/json/value.h"

namespace trainyard::json {

// Draft-07 of one object. `shape` describes every key; `complete` adds what is required. A file
// that extends another, and a section that takes a preset, need only the shape.
struct Schema {
  Value shape;
  Value complete;
};
Schema schema_of(const std::function<void(Fields&)>& visit);

// Every key of the table, sections first.
KeyIndex keys_of(const std::function<void(Fields&)>& visit);

// One resolved value: what the struct holds and where it was written.
struct Explained {
  std::string pointer;
  std::string value;  // as JSON
  Position origin;    // file "default" where the document has no such key
  std::string about;
};
// `document` is the tree that the struct was read from.
std::vector<Explained> explain(const Value& document, const std::function<void(Fields&)>& visit);

}  // namespace trainyard::json
