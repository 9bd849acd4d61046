#include <fmt/format.h>

#include "cli/shells/case_rows.h"

namespace trainyard::cli {
namespace {

// `path` is $PATH to zsh, hence the other name for where in the tree of commands the words lead.
constexpr std::string_view kHead =
    R"(#compdef trainyard
# Completion of trainyard for zsh. Use: source <(trainyard completion zsh)
_trainyard() {
  local at=trainyard i
  local -a options commands
  for ((i = 2; i < CURRENT; i++)); do
    case "$at ${words[i]}" in
)";
constexpr std::string_view kValues = R"(    esac
  done
  case ${words[CURRENT-1]} in
)";
constexpr std::string_view kOptions = R"(  esac
  case $at in
)";
constexpr std::string_view kTail = R"(  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _trainyard ]]; then
  _trainyard "$@"
else
  compdef _trainyard trainyard
fi
)";

// In single quotes; a colon ends the word that _describe offers, and what follows describes it.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text)
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string offer(std::string_view word, std::string_view about) {
  return in_quotes(about.empty() ? std::string(word) : fmt::format("{}:{}", word, about));
}

std::string offered(const std::vector<std::string>& choices) {
  return choices.empty() ? "_files" : fmt::format("compadd {}", fmt::join(choices, " "));
}

void append_words(const CommandTree& command, const std::string& path, std::string options,
                  std::string& script) {
  for (const CommandOption& option : command.options)
    for (const std::string& name : option.names)
      options += " " + offer(name, option.about);
  std::string commands;
  for (const CommandTree& inner : command.commands)
    commands += " " + offer(inner.name, inner.about);
  script += fmt::format("    '{}') options=({} ) commands=({} ) ;;\n", path, options, commands);
  for (const CommandTree& inner : command.commands)
    append_words(inner, path + " " + inner.name, options, script);
}

}  // namespace

std::string zsh_completion(const CommandTree& tree) {
  std::string script(kHead);
  script += path_rows(tree, "at");
  script += kValues;
  script += value_rows(tree, offered);
  script += kOptions;
  append_words(tree, tree.name, "", script);
  script += kTail;
  return script;
}

}  // namespace trainyard::cli
