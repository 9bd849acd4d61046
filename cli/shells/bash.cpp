#include <fmt/format.h>

#include "cli/shells/case_rows.h"

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

std::string offered(const std::vector<std::string>& choices) {
  const std::string words =
      choices.empty() ? "-f" : fmt::format("-W '{}'", fmt::join(choices, " "));
  return fmt::format("mapfile -t COMPREPLY < <(compgen {} -- \"$word\")", words);
}

void append_words(const CommandTree& command, const std::string& path, std::string options,
                  std::string& script) {
  for (const CommandOption& option : command.options)
    options += fmt::format(" {}", fmt::join(option.names, " "));
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
  script += path_rows(tree, "path");
  script += kValues;
  script += value_rows(tree, offered);
  script += kOptions;
  append_words(tree, tree.name, "", script);
  script += kTail;
  return script;
}

}  // namespace trainyard::cli
