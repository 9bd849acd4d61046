// docs/scenario.md: every key of a scenario, written from the tables that read it.
#pragma once

#include <string>
#include <vector>

#include "sim/json/field_rows.h"

namespace trainyard::scenario {

// Every key in the order of the tables, each with an example. Those of an object that another key
// holds too, such as a second kind of servers, are told once.
std::vector<json::FieldRow> reference_rows();

// The page of docs/ that explains a key: "memory.md".
std::string page_of(const json::FieldRow& row);

// The whole page, as Markdown.
std::string reference_page();

}  // namespace trainyard::scenario
