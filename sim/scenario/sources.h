// The files behind a scenario: what it extends, the presets it names, the --set options that change
// it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"

namespace trainyard::scenario {

// Files as they were when they were first read. May be used from several threads at once.
class ReadFiles {
 public:
  // The file as json::parse_file reads it, with what that says of it.
  std::shared_ptr<const json::Value> read(const std::string& path,
                                          std::vector<Diagnostic>& diagnostics);

 private:
  struct File {
    std::shared_ptr<const json::Value> value;
    std::vector<Diagnostic> diagnostics;
  };
  std::mutex mutex_;
  std::map<std::string, File> files_;
};

// Where the files that a scenario names are looked for.
struct Places {
  std::string configs;  // configs_folder()
  std::string root;     // that the user allows besides the scenario's own; may be empty
  std::shared_ptr<ReadFiles> files{};  // null: every file is read each time
};

// Reads a scenario file with everything it extends merged below it. Null after an error.
json::Value read_with_bases(const std::string& path, const std::string& root,
                            std::vector<Diagnostic>& diagnostics);

// An object of a file with everything it extends merged below it. Requires: an object.
json::Value with_bases(json::Value document, const std::string& root,
                       std::vector<Diagnostic>& diagnostics);

// Writes gpu and node given as names in the form {"preset": name}, so that patches merge into them.
void spell_out_names(json::Value& scenario);

// Where a "KEY=VALUE" writes: a JSON pointer. Requires: it has a key.
std::string pointer_of_set(const std::string& set);
// Applies one "KEY=VALUE".
void apply_set(json::Value& scenario, const std::string& set, std::vector<Diagnostic>& diagnostics);

// Replaces every preset, and a Hugging Face config, by the fields it stands for; fields beside the
// name win. A section whose preset is not found is marked as refused.
void expand_presets(json::Value& scenario, const Places& places,
                    std::vector<Diagnostic>& diagnostics);

// The fields of a Hugging Face config.json as those of /model. Null after an error.
json::Value from_hugging_face(const json::Value& config, std::vector<Diagnostic>& diagnostics);

// The configs folder that comes with trainyard; empty where its sources are gone.
std::string shipped_configs();

// A file of a configs folder, or of the shipped one where that has none of the name: "gpus", "h100"
// -> ".../gpus/h100.json". So a project can keep a few presets of its own beside the shipped ones.
std::string preset_path(const std::string& configs, const std::string& folder,
                        const std::string& name);
std::vector<std::string> preset_names(const std::string& configs, const std::string& folder);
bool is_file(const std::string& path);
// Whether presets of a part of the scenario are read from there: not of software, whose rows are
// keys of the scenario.
bool is_preset_file(const std::string& file, const std::string& configs);
// What a file of the folder is: "models" -> "model", "software" -> "software".
std::string_view singular(std::string_view folder);

// What to write for a name that no file of a folder has: the place of what it is a file of, names
// near it, or where all of them are listed.
std::string cure_of_preset(const std::string& name, const std::string& configs,
                           const std::string& folder);

// Names of presets that come with trainyard, sorted.
std::vector<std::string> shipped_models();
std::vector<std::string> shipped_gpus();
std::vector<std::string> shipped_servers();
std::vector<std::string> shipped_clusters();
std::vector<std::string> shipped_software();
std::vector<std::string> shipped_transports();

}  // namespace trainyard::scenario
