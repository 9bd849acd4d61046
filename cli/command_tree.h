// The commands and their options as plain values: what completion, the manual and suggestions need
// to know, without the library that parses the command line.
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
  std::string about;                 // one line
  std::string value = "VALUE";       // how help calls what it takes
};

// What a command takes without a name: the scenario's file.
struct CommandArgument {
  std::string name, about;
  bool required = true;
};

struct CommandTree {
  std::string name;
  std::vector<CommandOption> options;
  std::vector<CommandTree> commands;
  std::string about;  // one line
  std::vector<CommandArgument> arguments;
};

// What is wrong with the words of a command line, with the nearest known word; empty if every word
// is known. Options of outer commands are accepted anywhere.
std::string find_unknown_word(const CommandTree& tree, std::span<const std::string> words);

// The script of one of the shells below, by its name.
std::string completion(std::string_view shell, const CommandTree& tree);

// A script for bash: `source <(trainyard completion bash)`.
std::string bash_completion(const CommandTree& tree);

// A script for zsh, to be sourced or to lie in a folder of its $fpath as _trainyard.
std::string zsh_completion(const CommandTree& tree);

// A script for fish: `trainyard completion fish | source`.
std::string fish_completion(const CommandTree& tree);

// The manual page (section 1), for man(1); `version` is three numbers.
std::string manual_page(const CommandTree& tree, std::string_view version);

}  // namespace trainyard::cli
