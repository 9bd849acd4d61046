// What a search finds, as lines of JSON: first what was searched, then each configuration as soon
// as no more is known of it. A file of them is what a stopped search goes on from, and what the
// parts of a divided one are put together from. A configuration that stands twice counts as it
// stands last; a line that was not written to its end is none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/search/best.h"
#include "sim/search/space.h"
#include "sim/search/trial.h"

namespace trainyard::search {

struct JournalHead {
  std::string name;   // of the scenario
  std::string space;  // a number of 16 digits that another space, file or program does not have
  std::uint64_t size = 0;
  Shard shard{};
  bool exhaustive = false;  // nothing is left out by bounds
};

// Of the space that a scenario spans, as this program judges it by the files that it names.
JournalHead head_of(const scenario::ScenarioSet& set, const scenario::SearchSpec& spec,
                    const Space& space, const Shard& shard, bool exhaustive = false);

std::string to_line(const JournalHead& head);  // without the end of the line
std::string to_line(const Trial& trial, const Space& space);

struct Journal {
  JournalHead head;
  std::map<std::uint64_t, Trial> trials;
  std::size_t whole = 0;  // bytes of the whole lines
};

// Throws ScenarioError with the line where the text is none of a search.
Journal read_journal(std::string_view text, const std::string& file);

}  // namespace trainyard::search
