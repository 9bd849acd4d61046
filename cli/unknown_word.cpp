#include <fmt/format.h>

#include "cli/command_tree.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

const CommandOption* find_option(std::span<const CommandTree* const> open, std::string_view name) {
  for (const CommandTree* command : open)
    for (const CommandOption& option : command->options)
      for (const std::string& known : option.names)
        if (known == name) return &option;
  return nullptr;
}

const CommandTree* find_command(const CommandTree& tree, std::string_view name) {
  for (const CommandTree& command : tree.commands)
    if (command.name == name) return &command;
  return nullptr;
}

std::string unknown(std::string_view kind, std::string_view word,
                    const std::vector<std::string_view>& known) {
  std::string text = fmt::format("unknown {} '{}'", kind, escape_control(word));
  // Two slips are forgiven even in short words: 'rnu' is 'run'.
  const std::vector<std::string_view> first = nearest(word, known, 1);
  if (!first.empty() && (edit_distance(word, first.front()) <= 2 || find_nearest(word, known)))
    text += fmt::format("; did you mean '{}'?", first.front());
  return text;
}

std::string unknown_option(std::span<const CommandTree* const> open, std::string_view word) {
  std::vector<std::string_view> known;
  for (const CommandTree* command : open)
    for (const CommandOption& option : command->options)
      known.insert(known.end(), option.names.begin(), option.names.end());
  return unknown("option", word, known);
}

std::string unknown_command(const CommandTree& tree, std::string_view word) {
  std::vector<std::string_view> known;
  for (const CommandTree& command : tree.commands)
    known.push_back(command.name);
  return unknown("command", word, known);
}

}  // namespace

std::string find_unknown_word(const CommandTree& tree, std::span<const std::string> words) {
  std::vector<const CommandTree*> open = {&tree};  // outermost first
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-') {
      // "--set=a=1", "-j4": the name alone.
      const bool is_long = word[1] == '-';
      const std::string_view name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const CommandOption* option = find_option(open, name);
      if (option == nullptr) return unknown_option(open, name);
      if (option->takes_value && name == word) ++i;
      continue;
    }
    if (open.back()->commands.empty()) continue;
    const CommandTree* command = find_command(*open.back(), word);
    // A file where a command could stand, too: what it is called tells.
    if (command == nullptr && !open.back()->arguments.empty() &&
        word.find_first_of("./") != std::string_view::npos)
      continue;
    if (command == nullptr) return unknown_command(*open.back(), word);
    open.push_back(command);
  }
  return {};
}

}  // namespace trainyard::cli
