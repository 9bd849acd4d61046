#include "cli/shells/case_rows.h"

#include <fmt/format.h>

#include <set>

namespace trainyard::cli {
namespace {

using Offer = std::function<std::string(const std::vector<std::string>&)>;

void append_paths(const CommandTree& command, const std::string& path, std::string_view variable,
                  std::string& rows) {
  for (const CommandTree& inner : command.commands) {
    rows += fmt::format("      '{0} {1}') {2}='{0} {1}' ;;\n", path, inner.name, variable);
    append_paths(inner, path + " " + inner.name, variable, rows);
  }
}

void append_values(const CommandTree& command, const Offer& offer, std::set<std::string>& done,
                   std::string& rows) {
  for (const CommandOption& option : command.options) {
    if (!option.takes_value || !done.insert(option.names.front()).second) continue;
    rows += fmt::format("    {}) {}; return ;;\n", fmt::join(option.names, " | "),
                        offer(option.choices));
  }
  for (const CommandTree& inner : command.commands)
    append_values(inner, offer, done, rows);
}

}  // namespace

std::string path_rows(const CommandTree& tree, std::string_view variable) {
  std::string rows;
  append_paths(tree, tree.name, variable, rows);
  return rows;
}

std::string value_rows(const CommandTree& tree, const Offer& offer) {
  std::string rows;
  std::set<std::string> done;
  append_values(tree, offer, done, rows);
  return rows;
}

}  // namespace trainyard::cli
