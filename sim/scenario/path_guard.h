// The one door for files that a scenario names: what it extends, a network's config.json, a
// profile, presets. A file that was sent by somebody else must not make the program read, and quote
// in its messages, what lies elsewhere on this machine.
#pragma once

#include <string>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"
#include "sim/scenario/sources.h"

namespace trainyard::scenario {

// The path of the file that a value names; empty, with a diagnostic that says the cure, if there is
// none or if it lies outside the scenario's root: the nearest folder upwards from the file in which
// the value stands that holds presets/, models/ or configs/, else that file's folder. Links count
// as what they lead to. A relative path begins at the folder of the file in which the value stands,
// one of --set at the working folder. `root` (may be empty) is a folder in which every file may be
// read, by an absolute path too.
std::string resolve_path(const json::Value& value, const std::string& pointer,
                         const std::string& root, std::vector<Diagnostic>& diagnostics);

// Whether there is a file at the path that a value names, wherever that is.
bool names_file(const json::Value& value);

// Whether the file of a preset is where presets are: in its configs folder, in the shipped one or
// in the root. If not, a diagnostic says that a link leads elsewhere.
bool preset_stays(const std::string& path, const json::Value& name, const std::string& pointer,
                  const Places& places, std::vector<Diagnostic>& diagnostics);

}  // namespace trainyard::scenario
