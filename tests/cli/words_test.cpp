#include <doctest/doctest.h>

#include "cli/command_tree.h"

using namespace trainyard::cli;

namespace {

CommandTree tree() {
  CommandTree run;
  run.name = "run";
  run.about = "Simulate 'one' step";
  run.options = {{{"--set"}, true, {}, "A value", "KEY=VALUE"},
                 {{"--output", "-o"}, true, {}, "A folder", "DIR"}};
  run.arguments = {{"FILE", "The scenario", true}};
  CommandTree show;
  show.name = "show";
  CommandTree presets;
  presets.name = "presets";
  presets.commands = {show};
  CommandTree all;
  all.name = "trainyard";
  all.options = {{{"--quiet", "-q"}, false, {}, "Say nothing", ""},
                 {{"--color"}, true, {"auto", "never"}, "When", "WHEN"}};
  all.commands = {run, presets};
  return all;
}

std::string unknown(const std::vector<std::string>& words) {
  return find_unknown_word(tree(), words);
}

}  // namespace

TEST_CASE("A command line of known words has no unknown word") {
  CHECK(unknown({}) == "");
  CHECK(unknown({"run", "a.json", "--set", "a=1", "-o", "out", "-q"}) == "");
  CHECK(unknown({"--color", "never", "presets", "show", "a100"}) == "");
  CHECK(unknown({"run", "--set=a=-1", "-oout"}) == "");
}

TEST_CASE("A slip of the keyboard is named with the nearest known word") {
  CHECK(unknown({"rnu"}) == "unknown command 'rnu'; did you mean 'run'?");
  CHECK(unknown({"run", "--sett", "a=1"}) == "unknown option '--sett'; did you mean '--set'?");
  CHECK(unknown({"presets", "shwo"}) == "unknown command 'shwo'; did you mean 'show'?");
  CHECK(unknown({"-q", "run", "--quite"}) == "unknown option '--quite'; did you mean '--quiet'?");
}

TEST_CASE("A file where a command could stand is none") {
  CommandTree all = tree(), search, merge;
  merge.name = "merge";
  search.name = "search";
  search.arguments = {{"scenario", "The scenario file", false}};
  search.commands = {merge};
  all.commands.push_back(search);
  const auto found = [&](const std::vector<std::string>& words) {
    return find_unknown_word(all, words);
  };
  CHECK(found({"search", "a.json", "--quite"}) ==
        "unknown option '--quite'; did you mean '--quiet'?");
  CHECK(found({"search", "./a", "-q"}) == "");
  CHECK(found({"search", "mrege", "a.json"}) == "unknown command 'mrege'; did you mean 'merge'?");
}

TEST_CASE("A word that is near nothing gets no suggestion") {
  CHECK(unknown({"simulate"}) == "unknown command 'simulate'");
}

TEST_CASE("The value of an option and what follows a double dash are not judged") {
  CHECK(unknown({"run", "--set", "--sett"}) == "");
  CHECK(unknown({"run", "--", "--sett"}) == "");
}

TEST_CASE("Control bytes of an unknown word are shown as text") {
  CHECK(unknown({"run", "--x\x1b[31m"}) == "unknown option '--x\\x1b[31m'");
}

TEST_CASE("Completion knows every command and option") {
  const std::string script = bash_completion(tree());
  CHECK(script.find("'trainyard') options='--quiet -q --color' commands='run presets' ;;") !=
        std::string::npos);
  CHECK(script.find(
            "'trainyard run') options='--quiet -q --color --set --output -o' commands='' ;;") !=
        std::string::npos);
  CHECK(script.find("--color) mapfile -t COMPREPLY < <(compgen -W 'auto never'") !=
        std::string::npos);
}

TEST_CASE("Completion for zsh and fish describes every command and option") {
  const std::string zsh = zsh_completion(tree());
  CHECK(zsh.find("'trainyard presets show') at='trainyard presets show'") != std::string::npos);
  CHECK(zsh.find("'run:Simulate '\\''one'\\'' step'") != std::string::npos);
  CHECK(zsh.find("--color) compadd auto never; return ;;") != std::string::npos);
  const std::string fish = fish_completion(tree());
  CHECK(fish.find("\"__trainyard_at 'trainyard run' below\" -l output -s o -r -F -d 'A folder'") !=
        std::string::npos);
  CHECK(fish.find("-f -a run -d 'Simulate \\'one\\' step'") != std::string::npos);
}

TEST_CASE("The manual has a section for each command, with what it takes") {
  const std::string page = manual_page(tree(), "1.2.3");
  CHECK(page.starts_with(".TH TRAINYARD 1 \"\" \"trainyard 1.2.3\""));
  for (const std::string_view expected :
       {".SS trainyard run\n\\fBtrainyard run\\fR [\\fIOPTION\\fR]... \\fIFILE\\fR\n",
        ".SS trainyard presets show\n",
        "\\fB\\-\\-output\\fR, \\fB\\-o\\fR \\fIDIR\\fR\nA folder\n",
        "When (one of: auto, never)\n"})
    CHECK_MESSAGE(page.find(expected) != std::string::npos, expected);
}
