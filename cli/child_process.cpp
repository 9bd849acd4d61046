#include "cli/child_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/exit_code.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code) && ::access(path.c_str(), X_OK) == 0;
}

// The child gets no blocked signals (we block those that end us) and no ignored ones, and a process
// group of its own: Ctrl-C reaches it through us once, not from the terminal and from us.
class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, ordinary;
    sigemptyset(&none);
    sigemptyset(&ordinary);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGABRT})
      sigaddset(&ordinary, signal);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &ordinary);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() { ::posix_spawnattr_destroy(&attributes_); }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace

std::string find_program(const std::string& name) {
  std::error_code code;
  const fs::path self = fs::read_symlink("/proc/self/exe", code);
  if (!code && can_run(self.parent_path() / name)) return (self.parent_path() / name).string();
  const char* const path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const fs::path candidate = fs::path(folders.substr(0, end)) / name;
    // An empty entry is the working folder: no program is taken from there by accident.
    if (end > 0 && can_run(candidate)) return candidate.string();
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return "";
}

ChildEnd run_program(const std::string& path, const std::vector<std::string>& arguments,
                     Interrupts& interrupts) {
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const SpawnSettings settings;
  pid_t child = 0;
  {
    Interrupts::Hold hold(interrupts);
    const int error =
        ::posix_spawn(&child, path.c_str(), nullptr, settings.get(), pointers.data(), environ);
    if (error != 0)
      throw EnvironmentError(
          fmt::format("{}: cannot be started: {}", escape_control(path), std::strerror(error)));
    hold.set_child(child);
  }
  // Looked at without being reaped: until the lock is held its number must not become another's.
  siginfo_t ended = {};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  Interrupts::Hold hold(interrupts);
  hold.set_child(0);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ChildEnd end;
  if (WIFSIGNALED(status))
    end.signal = WTERMSIG(status);
  else
    end.code = WEXITSTATUS(status);
  return end;
}

}  // namespace trainyard::cli
