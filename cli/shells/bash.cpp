#include <fmt/format.h>

#include <set>

#include "cli/command_tree.h"

namespace trainyard::cli {
namespace {

// What bash's complete -F calls. It looks for the innermost command among the words typed so far.
constexpr std::string_view kHead =
    R"(# Completion of trainyard for bash. Use: source <(trainyard completion bash)
_trainyard() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} path=trainyard i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
)";
constexpr std::string_view kValues = R"(    esac
  done
  case $previous in
)";
constexpr std::string_view kOptions = R"(  esac
  local options="" commands=""
  case $path in
)";
constexpr std::string_view kTail = R"(  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _trainyard trainyard
)";

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

void append_paths(const CommandTree& command, const std::string& path, std::string& script) {
  for (const CommandTree& inner : command.commands) {
    script += fmt::format("      '{0} {1}') path='{0} {1}' ;;\n", path, inner.name);
    append_paths(inner, path + " " + inner.name, script);
  }
}

// After an option that takes a value the word is that value: one of its choices, or a file.
// Commands share options; an option means the same in all of them.
void append_values(const CommandTree& command, std::set<std::string>& done, std::string& script) {
  for (const CommandOption& option : command.options) {
    if (!option.takes_value || !done.insert(option.names.front()).second) continue;
    const std::string words =
        option.choices.empty() ? "-f" : fmt::format("-W '{}'", joined(option.choices, " "));
    script += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen {} -- \"$word\"); return ;;\n",
                          joined(option.names, " | "), words);
  }
  for (const CommandTree& inner : command.commands)
    append_values(inner, done, script);
}

void append_words(const CommandTree& command, const std::string& path, std::string options,
                  std::string& script) {
  for (const CommandOption& option : command.options)
    options += " " + joined(option.names, " ");
  std::string commands;
  for (const CommandTree& inner : command.commands)
    commands += " " + inner.name;
  script += fmt::format("    '{}') options='{}' commands='{}' ;;\n", path,
                        std::string_view(options).substr(options.empty() ? 0 : 1),
                        std::string_view(commands).substr(commands.empty() ? 0 : 1));
  for (const CommandTree& inner : command.commands)
    append_words(inner, path + " " + inner.name, options, script);
}

}  // namespace

std::string completion(std::string_view shell, const CommandTree& tree) {
  if (shell == "zsh") return zsh_completion(tree);
  return shell == "fish" ? fish_completion(tree) : bash_completion(tree);
}

std::string bash_completion(const CommandTree& tree) {
  std::string script(kHead);
  append_paths(tree, tree.name, script);
  script += kValues;
  std::set<std::string> done;
  append_values(tree, done, script);
  script += kOptions;
  append_words(tree, tree.name, "", script);
  script += kTail;
  return script;
}

}  // namespace trainyard::cli
