// Rows of `case` in which the scripts of bash and zsh agree.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_tree.h"

namespace trainyard::cli {

// Where a command leads: to a path of commands, kept in `variable`.
std::string path_rows(const CommandTree& tree, std::string_view variable);

// What an option takes: `offer` is the statement that offers its choices, or files if it has none.
// Commands share options; an option means the same in all of them.
std::string value_rows(const CommandTree& tree,
                       const std::function<std::string(const std::vector<std::string>&)>& offer);

}  // namespace trainyard::cli
