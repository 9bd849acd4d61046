// A field table as rows for people: what stands under each key, in words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/json/fields.h"

namespace trainyard::json {

struct FieldRow {
  std::string section;  // pointer of the object that holds the key; "0": any item of an array
  std::string kind;     // in an object of several kinds: the kind that has the key
  std::string key;
  std::string value;      // "a size", "whole number, at least 1", "one of `a`, `b`", ...
  std::string otherwise;  // the default as JSON; empty: there is none, or `about` says it
  std::string example;    // as JSON; empty where no value of its type is better than another
  std::string about;
  bool required = false;
  bool object = false;  // rows of its own stand under it

  std::string pointer() const { return section + "/" + key; }
};

// Every key of the table, in its order, the keys of an object behind the object's own.
std::vector<FieldRow> rows_of(const std::function<void(Fields&)>& visit);

}  // namespace trainyard::json
