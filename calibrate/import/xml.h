// Elements and attributes of a small XML file, with the lines on which they begin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calibrate/import/line_diagnostics.h"

namespace trainyard::imports {

struct XmlElement {
  std::string name;
  int line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  // Empty where there is none of that name.
  std::string_view attribute(std::string_view key) const;
};

// The only root of the file; nothing, with an error in `notes`, if it is no XML, or is larger and
// deeper than descriptions of servers are. Text between elements is left out; a document type, and
// with it entities of its own, is refused.
std::optional<XmlElement> read_xml(std::string_view text, Notes& notes);

}  // namespace trainyard::imports
