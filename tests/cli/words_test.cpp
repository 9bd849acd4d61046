#include <doctest/doctest.h>

#include "cli/command_tree.h"

using namespace trainyard::cli;

namespace {

CommandTree tree() {
  CommandTree run{"run", {{{"--set"}, true, {}}, {{"--output", "-o"}, true, {}}}, {}};
  CommandTree show{"show", {}, {}};
  CommandTree presets{"presets", {}, {show}};
  return {"trainyard",
          {{{"--quiet", "-q"}, false, {}}, {{"--color"}, true, {"auto", "never"}}},
          {run, presets}};
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
