#include <fmt/format.h>

#include "cli/command_tree.h"

namespace trainyard::cli {
namespace {

constexpr std::string_view kHead =
    R"(# Completion of trainyard for fish. Use: trainyard completion fish | source
function __trainyard_at
  set -l at trainyard
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
)";
constexpr std::string_view kTail = R"(    end
  end
  if test (count $argv) -gt 1
    string match -q -- "$argv[1] *" "$at "
  else
    test "$at" = "$argv[1]"
  end
end
)";

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text)
    result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "'";
}

void append_paths(const CommandTree& command, const std::string& path, std::string& script) {
  for (const CommandTree& inner : command.commands) {
    script += fmt::format("      case '{0} {1}'\n        set at '{0} {1}'\n", path, inner.name);
    append_paths(inner, path + " " + inner.name, script);
  }
}

std::string option_line(const CommandOption& option, const std::string& path) {
  // An option of an outer command is accepted anywhere below it.
  std::string line = fmt::format("complete -c trainyard -n \"__trainyard_at '{}' below\"", path);
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (option.takes_value) line += option.choices.empty() ? " -r -F" : " -x";
  if (!option.choices.empty())
    line += " -a " + in_quotes(fmt::format("{}", fmt::join(option.choices, " ")));
  return line + " -d " + in_quotes(option.about) + "\n";
}

void append_words(const CommandTree& command, const std::string& path, std::string& script) {
  for (const CommandOption& option : command.options)
    script += option_line(option, path);
  for (const CommandTree& inner : command.commands)
    script += fmt::format("complete -c trainyard -n \"__trainyard_at '{}'\" -f -a {} -d {}\n", path,
                          inner.name, in_quotes(inner.about));
  for (const CommandTree& inner : command.commands)
    append_words(inner, path + " " + inner.name, script);
}

}  // namespace

std::string fish_completion(const CommandTree& tree) {
  std::string script(kHead);
  append_paths(tree, tree.name, script);
  script += kTail;
  append_words(tree, tree.name, script);
  return script;
}

}  // namespace trainyard::cli
