#include "cli/output_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/exit_code.h"

using namespace trainyard::cli;
namespace fs = std::filesystem;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "trainyard-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

const std::string kSummary = "{\n  \"trainyard\": \"1\"\n}\n";

}  // namespace

TEST_CASE("A new folder, and those above it, appear with exactly the files") {
  const TemporaryFolder here;
  Interrupts interrupts;
  OutputFolder folder(here / "a/b/", false, interrupts);
  folder.write({{"summary.json", kSummary}, {"report.html", "page"}}, {});
  CHECK(read(here / "a/b/summary.json") == kSummary);
  CHECK(read(here / "a/b/report.html") == "page");
  CHECK(std::distance(fs::directory_iterator(here / "a/b"), {}) == 2);
}

TEST_CASE("A folder that was made for nothing is removed again") {
  const TemporaryFolder here;
  {
    Interrupts interrupts;
    const OutputFolder folder(here / "a/b", false, interrupts);
    CHECK(fs::is_directory(here / "a"));
  }
  CHECK_FALSE(fs::exists(here / "a"));
}

TEST_CASE("An earlier result is replaced, other files are not touched") {
  const TemporaryFolder here;
  Interrupts interrupts;
  for (const char* page : {"first", "second"}) {
    OutputFolder folder(here / "out", false, interrupts);
    folder.write({{"summary.json", kSummary}, {"report.html", page}}, {});
    write(here / "out/notes.txt", "mine");
  }
  CHECK(read(here / "out/report.html") == "second");
  CHECK(read(here / "out/notes.txt") == "mine");
}

TEST_CASE("A folder with other files is refused unless forced") {
  const TemporaryFolder here;
  Interrupts interrupts;
  fs::create_directory(here / "out");
  write(here / "out/summary.json", "{\"mine\": 1}");
  CHECK_THROWS_AS(OutputFolder(here / "out", false, interrupts), EnvironmentError);
  OutputFolder folder(here / "out", true, interrupts);
  folder.write({{"summary.json", kSummary}}, {});
  CHECK(read(here / "out/summary.json") == kSummary);
}

TEST_CASE("What a killed run has left behind counts as nothing") {
  const TemporaryFolder here;
  Interrupts interrupts;
  fs::create_directory(here / "out");
  write(here / "out/.summary.json.trainyard-tmp", "half");
  OutputFolder folder(here / "out", false, interrupts);
  folder.write({{"summary.json", kSummary}}, {});
  CHECK(std::distance(fs::directory_iterator(here / "out"), {}) == 1);
}

TEST_CASE("If one file cannot be written, none is") {
  const TemporaryFolder here;
  Interrupts interrupts;
  fs::create_directory(here / "out");
  write(here / "out/summary.json", kSummary + "old");
  fs::create_directory(here / "out/report.html");
  OutputFolder folder(here / "out", false, interrupts);
  CHECK_THROWS_AS(folder.write({{"summary.json", kSummary}, {"report.html", "page"}}, {}),
                  EnvironmentError);
  CHECK(read(here / "out/summary.json") == kSummary + "old");
  CHECK(std::distance(fs::directory_iterator(here / "out"), {}) == 2);
}

TEST_CASE("An input is never overwritten, under whatever name") {
  const TemporaryFolder here;
  Interrupts interrupts;
  fs::create_directory(here / "out");
  write(here / "out/summary.json", kSummary);
  fs::create_hard_link(here / "out/summary.json", here / "scenario.json");
  OutputFolder folder(here / "out", false, interrupts);
  CHECK_THROWS_AS(folder.write({{"summary.json", "new"}}, {here / "scenario.json"}),
                  EnvironmentError);
  CHECK(read(here / "scenario.json") == kSummary);
}

TEST_CASE("Who has opened the earlier result never sees a file of the later one") {
  const TemporaryFolder here;
  Interrupts interrupts;
  OutputFolder(here / "out", false, interrupts)
      .write({{"summary.json", kSummary + "1"}, {"report.html", "1"}}, {});
  const int reader = ::open((here / "out").c_str(), O_RDONLY | O_DIRECTORY);
  OutputFolder(here / "out", false, interrupts)
      .write({{"summary.json", kSummary + "2"}, {"report.html", "2"}}, {});
  for (const char* name : {"summary.json", "report.html"})
    CHECK(::faccessat(reader, name, F_OK, 0) != 0);
  ::close(reader);
  CHECK(read(here / "out/summary.json") == kSummary + "2");
  CHECK(read(here / "out/report.html") == "2");
  CHECK(std::distance(fs::directory_iterator(here / "out"), {}) == 2);
  CHECK(std::distance(fs::directory_iterator(here / ""), {}) == 1);
}

TEST_CASE("Whenever a run is killed, its folder holds the earlier result or the later one, whole") {
  const TemporaryFolder here;
  Interrupts interrupts;
  const auto write_once = [&](Interrupts& own, const std::string& tag) {
    OutputFolder(here / "out", false, own)
        .write({{"summary.json", kSummary + tag}, {"trace.pftrace.gz", tag}, {"report.html", tag}},
               {});
  };
  write_once(interrupts, "0");
  write(here / "out/notes.txt", "mine");
  for (int round = 1; round <= 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Interrupts own;
      for (int i = 0;; ++i)
        write_once(own, std::to_string(round) + "-" + std::to_string(i));
    }
    ::usleep(static_cast<useconds_t>(500 + 137 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const std::string tag = read(here / "out/report.html");
    CHECK(read(here / "out/summary.json") == kSummary + tag);
    CHECK(read(here / "out/trace.pftrace.gz") == tag);
  }
  write_once(interrupts, "last");
  CHECK(read(here / "out/notes.txt") == "mine");
  CHECK(std::distance(fs::directory_iterator(here / "out"), {}) == 4);
  CHECK(std::distance(fs::directory_iterator(here / ""), {}) == 1);
}

TEST_CASE("The working folder stays the same folder") {
  const TemporaryFolder here;
  Interrupts interrupts;
  const fs::path before = fs::current_path();
  fs::create_directory(here / "out");
  fs::current_path(here / "out");
  for (const char* page : {"first", "second"}) {
    OutputFolder folder(".", false, interrupts);
    folder.write({{"summary.json", kSummary}, {"report.html", page}}, {});
    CHECK(read("report.html") == page);
  }
  CHECK(std::distance(fs::directory_iterator("."), {}) == 2);
  fs::current_path(before);
}

TEST_CASE("The result of a run and that of a comparison do not replace one another") {
  const TemporaryFolder here;
  Interrupts interrupts;
  const std::string comparison =
      "{\n  \"trainyard\": \"1\",\n  \"name\": \"x\",\n  \"baseline\": \"a\"\n}\n";
  OutputFolder(here / "both", false, interrupts, FolderKind::comparison)
      .write({{"summary.json", comparison}}, {});
  CHECK_THROWS_WITH_AS(OutputFolder(here / "both", false, interrupts, FolderKind::step),
                       doctest::Contains("holds the result of compare"), EnvironmentError);
  OutputFolder(here / "both", false, interrupts, FolderKind::comparison);
  OutputFolder(here / "both", true, interrupts, FolderKind::step)
      .write({{"summary.json", kSummary}}, {});
  CHECK_THROWS_WITH_AS(OutputFolder(here / "both", false, interrupts, FolderKind::comparison),
                       doctest::Contains("holds the result of run"), EnvironmentError);
  const std::string search = "{\n  \"trainyard\": \"1\",\n  \"objectives\": [\"step_time\"]\n}\n";
  OutputFolder(here / "both", true, interrupts, FolderKind::search)
      .write({{"summary.json", search}, {"search.html", "first"}}, {});
  CHECK_THROWS_WITH_AS(OutputFolder(here / "both", false, interrupts, FolderKind::comparison),
                       doctest::Contains("holds the result of search"), EnvironmentError);
  OutputFolder(here / "both", false, interrupts, FolderKind::search)
      .write({{"summary.json", search}, {"search.html", "second"}}, {});
  CHECK(read(here / "both/search.html") == "second");
}

TEST_CASE("Two runs do not write into one folder at a time") {
  const TemporaryFolder here;
  Interrupts interrupts;
  const OutputFolder folder(here / "out", false, interrupts);
  CHECK_THROWS_WITH_AS(OutputFolder(here / "out", false, interrupts),
                       doctest::Contains("another trainyard"), EnvironmentError);
}

// The child is stopped by the signal while it holds a temporary file and a folder of its own
// making.
TEST_CASE("A signal removes what is half done and ends with 128 + its number") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    const TemporaryFolder here;
    const std::string temporary = here / "half";
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(number, SIG_DFL);
      Interrupts interrupts;
      const OutputFolder folder(here / "out", false, interrupts);
      write(temporary, "x");
      {
        Interrupts::Hold hold(interrupts);
        hold.add_file(AT_FDCWD, temporary);
      }
      ::kill(::getpid(), number);
      ::sleep(60);
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + number);
    CHECK_FALSE(fs::exists(temporary));
    CHECK_FALSE(fs::exists(here / "out"));
  }
}
