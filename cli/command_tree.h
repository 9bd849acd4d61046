// The commands and their options as plain values: what completion and suggestions need to know,
// without the library that parses the command line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::cli {

struct CommandOption {
  std::vector<std::string> names;  // "--output", "-o"
  bool takes_value = false;
  std::vector<std::string> choices;  // what the value may be, if that is a list
};

struct CommandTree {
  std::string name;
  std::vector<CommandOption> options;
  std::vector<CommandTree> commands;
};

// What is wrong with the words of a command line, with the nearest known word; empty if every word
// is known. Options of outer commands are accepted anywhere.
std::string find_unknown_word(const CommandTree& tree, std::span<const std::string> words);

// A script for bash: `source <(trainyard completion bash)`.
std::string bash_completion(const CommandTree& tree);

}  // namespace trainyard::cli
