// From the words of the command line to the command that they ask for.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "cli/command_tree.h"
#include "cli/commands.h"
#include "cli/commands/execute.h"
#include "cli/commands/options.h"
#include "sim/base/text.h"
#include "sim/base/version.h"

namespace trainyard::cli {
namespace {

CommandOption describe(const CLI::Option& option) {
  CommandOption described;
  for (const std::string& name : option.get_lnames())
    described.names.push_back("--" + name);
  for (const std::string& name : option.get_snames())
    described.names.push_back("-" + name);
  described.takes_value = option.get_items_expected_max() > 0;
  described.about = option.get_description();
  described.value = option.get_type_name();
  if (described.names.front() == "--color") described.choices = {"auto", "always", "never"};
  if (described.names.front() == "--attention") described.choices = {"cudnn", "tiled"};
  if (described.names.front() == "--stage") described.choices = explain_stages();
  if (described.names.front() == "--algorithm") described.choices = collective_algorithms();
  if (described.names.front() == "--protocol") described.choices = collective_protocols();
  if (described.names.front() == "--fidelity") described.choices = fidelities();
  if (described.names.front() == "--collective") described.choices = import_collectives();
  if (described.names.front() == "--intra") described.choices = import_links();
  return described;
}

CommandTree describe(const CLI::App& app) {
  CommandTree tree;
  tree.name = app.get_name();
  tree.about = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) tree.options.push_back(describe(*option));
    if (!option->nonpositional())
      tree.arguments.push_back(
          {option->get_name(), option->get_description(), option->get_required()});
  }
  for (const CLI::App* command : app.get_subcommands({}))
    tree.commands.push_back(describe(*command));
  return tree;
}

// CLI11's own messages list words in reverse and print the whole help; ours is a line and a hint.
int explain_parse_error(const CLI::App& app, const CLI::ParseError& error,
                        const std::vector<std::string>& words, Console& console) {
  std::string text = find_unknown_word(describe(app), words);
  const CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty())
    innermost = innermost->get_subcommands().front();
  if (text.empty() && innermost->get_require_subcommand_min() > 0) {
    text = "a command is missing:";
    for (const CLI::App* command : innermost->get_subcommands({}))
      text += " " + command->get_name();
  }
  if (text.empty()) {
    text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    text = escape_control(text);
  }
  std::string command;
  for (const CLI::App* at = innermost; at != nullptr; at = at->get_parent())
    command = at->get_name() + (command.empty() ? "" : " ") + command;
  console.error(text + "; see '" + command + " --help'");
  return static_cast<int>(ExitCode::usage);
}

Command chosen(const CLI::App& app, Options& options) {
  const auto with = [](auto command, const auto& given) -> Command {
    return [command, &given](const Context& context) { return command(given, context); };
  };
  const CLI::App& outer = *app.get_subcommands().front();
  const std::string name = outer.get_name();
  const auto below = outer.get_subcommands();
  const std::string inner = below.empty() ? "" : below.front()->get_name();
  if (name == "new") return with(new_scenario, options.new_scenario);
  if (name == "run") return with(run, options.run);
  if (name == "compare") return with(compare, options.compare);
  if (name == "validate") return with(validate, options.validate);
  if (name == "search" && inner == "merge") return with(merge_searches, options.search);
  if (name == "search") return with(search_space, options.search);
  if (name == "check") return with(check, options.check);
  if (name == "explain") return with(explain, options.explain);
  if (name == "presets") return with(presets, options.presets);
  if (name == "schedules") return with(schedules, options.schedules);
  if (name == "collective") return with(collective_table, options.collective);
  if (name == "kernel") return with(kernel, options.kernel);
  options.import_log.format = inner;
  if (name == "import") return with(import_log, options.import_log);
  if (name == "fit") return with(fit, options.fit);
  if (name == "calibrate") return with(calibrate, options.calibrate);
  if (name == "schema") return with(schema, options.schema);
  return [&app, name, inner](const Context& context) {
    const CommandTree tree = describe(app);
    context.console.result(name == "manual" ? manual_page(tree, kVersion)
                                            : completion(inner, tree));
    return ExitCode::done;
  };
}

bool asks_json(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    const CLI::Option* option = command->get_option_no_throw("--json");
    if ((option != nullptr && option->count() > 0) || asks_json(*command)) return true;
  }
  return false;
}

int parse_and_execute(const std::vector<std::string>& words) {
  Options options;
  CLI::App app("Predicts how a training job runs on many GPUs.", "trainyard");
  declare_options(app, options);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& answer) {  // --help, --version
    Console console(ColorMode::never, false);
    Interrupts interrupts;
    const Command print = [&](const Context& context) {
      const auto* version = dynamic_cast<const CLI::CallForVersion*>(&answer);
      context.console.result(version ? version->what() + std::string("\n") : app.help());
      return ExitCode::done;
    };
    return static_cast<int>(execute(print, {console, interrupts}, false));
  } catch (const CLI::ParseError& error) {
    Console console(ColorMode::automatic, false);
    return explain_parse_error(app, error, words, console);
  }
  Console console(color_mode(options.color), options.quiet);
  Interrupts interrupts;
  return static_cast<int>(execute(chosen(app, options), {console, interrupts}, asks_json(app)));
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  trainyard::cli::open_standard_streams();
  trainyard::cli::set_signal_dispositions();
  return trainyard::cli::parse_and_execute(
      std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
