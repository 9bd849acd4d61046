#include <fmt/format.h>

#include "cli/command_tree.h"

namespace trainyard::cli {
namespace {

constexpr std::string_view kDescription = R"(.SH DESCRIPTION
trainyard predicts how a deep-learning training job runs on many GPUs before anyone rents them.
One JSON scenario says network, cluster, parallelism and recipe; every kernel, message and byte of
memory of a step is simulated. Each command is described below.
)";
constexpr std::string_view kRest = R"(.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
The job does not fit in memory, or never ends; of
.BR compare :
no variant is feasible.
.TP
.B 2
The command line is wrong.
.TP
.B 3
A file is wrong or absent; every mistake is listed with line, column and cure.
.TP
.B 4
A file cannot be written, or the machine is in the way.
.TP
.B 70
A mistake of the program itself; please report it.
.SH ENVIRONMENT
.TP
.B TRAINYARD_CONFIGS
The folder of presets and profiles. Without it: a folder
.I configs
above the scenario, then the one that came with the program.
.SH EXAMPLES
.nf
trainyard run my.json \-o out
trainyard compare my.json \-\-csv
trainyard run my.json \-\-set parallelism.tp=8 \-\-json
.fi
.SH SEE ALSO
.BR nvidia\-smi (1)
)";

// A line of roff is no request, and a minus is the one that shells take.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  if (result.starts_with('.') || result.starts_with('\'')) result.insert(0, "\\&");
  return result;
}

void append_option(const CommandOption& option, std::string& page) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
  const std::string value = option.value.substr(0, option.value.find(':'));  // "WHEN:{auto,never}"
  if (option.takes_value) names += " \\fI" + escaped(value) + "\\fR";
  page += fmt::format(".TP\n{}\n{}", names, escaped(option.about));
  if (!option.choices.empty())
    page += escaped(fmt::format(" (one of: {})", fmt::join(option.choices, ", ")));
  page += "\n";
}

void append_command(const CommandTree& command, const std::string& path, std::string& page) {
  std::string usage = fmt::format("\\fB{}\\fR", escaped(path));
  if (!command.options.empty()) usage += " [\\fIOPTION\\fR]...";
  for (const CommandArgument& argument : command.arguments)
    usage += argument.required ? fmt::format(" \\fI{}\\fR", escaped(argument.name))
                               : fmt::format(" [\\fI{}\\fR]", escaped(argument.name));
  if (!command.commands.empty()) usage += " [\\fICOMMAND\\fR]";
  page += fmt::format(".SS {}\n{}\n.PP\n{}.\n", escaped(path), usage, escaped(command.about));
  for (const CommandArgument& argument : command.arguments)
    page += fmt::format(".TP\n\\fI{}\\fR\n{}\n", escaped(argument.name), escaped(argument.about));
  for (const CommandOption& option : command.options)
    if (option.names.front() != "--help") append_option(option, page);
  for (const CommandTree& inner : command.commands)
    append_command(inner, path + " " + inner.name, page);
}

}  // namespace

std::string manual_page(const CommandTree& tree, std::string_view version) {
  std::string page = fmt::format(
      ".TH TRAINYARD 1 \"\" \"trainyard {}\"\n.SH NAME\ntrainyard \\- {}\n.SH SYNOPSIS\n"
      "\\fBtrainyard\\fR [\\fIOPTION\\fR]... \\fICOMMAND\\fR ...\n",
      version, "predict how a training job runs on many GPUs");
  page += kDescription;
  page += ".SH OPTIONS\n";
  for (const CommandOption& option : tree.options)
    append_option(option, page);
  page += ".SH COMMANDS\n";
  for (const CommandTree& command : tree.commands)
    append_command(command, tree.name + " " + command.name, page);
  page += kRest;
  return page;
}

}  // namespace trainyard::cli
