#include "tests/fuzz/child.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "sim/base/check.h"
#include "tests/fuzz/files.h"

namespace trainyard::fuzz {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHasSanitizers = true;
#else
constexpr bool kHasSanitizers = false;
#endif

void limit(const Limits& limits) {
  const auto seconds = static_cast<rlim_t>(limits.cpu_seconds);
  const rlimit time = {seconds, seconds + 1};
  ::setrlimit(RLIMIT_CPU, &time);
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // The address sanitizer takes terabytes of addresses; what it uses of them is watched.
  const rlimit memory = {limits.bytes, limits.bytes};
  if (!kHasSanitizers) ::setrlimit(RLIMIT_AS, &memory);
}

[[noreturn]] void work_in_child(const Limits& limits, const std::function<std::string()>& work,
                                int result, int streams) {
  limit(limits);
  ::dup2(streams, STDOUT_FILENO);
  ::dup2(streams, STDERR_FILENO);
  std::string said;
  try {
    said = work();
  } catch (const std::exception& error) {
    fmt::print(stderr, "escaped: {}\n", error.what());
    std::fflush(nullptr);
    ::_exit(71);
  }
  std::fflush(nullptr);
  std::size_t written = 0;
  while (written < said.size()) {
    const ssize_t more = ::write(result, said.data() + written, said.size() - written);
    if (more < 0) ::_exit(72);
    written += static_cast<std::size_t>(more);
  }
  ::_exit(0);
}

std::size_t resident_bytes(pid_t id) {
  std::ifstream file(fmt::format("/proc/{}/statm", id));
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

std::string how_it_died(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGXCPU ? "time" : fmt::format("signal {}", signal);
  }
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace

int memory_file() {
  const int descriptor = ::memfd_create("fuzz", 0);
  TRAINYARD_CHECK(descriptor >= 0, "no file in memory");
  return descriptor;
}

std::string content_of(int descriptor) {
  std::string content;
  char buffer[1 << 16];
  off_t at = 0;
  for (;;) {
    const ssize_t got = ::pread(descriptor, buffer, sizeof buffer, at);
    if (got <= 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
    at += got;
  }
}

void Children::start(std::size_t number, const std::function<std::string()>& work) {
  Child child{number, 0, memory_file(), memory_file()};
  std::fflush(nullptr);
  child.id = ::fork();
  TRAINYARD_CHECK(child.id >= 0, "no process");
  if (child.id == 0) work_in_child(limits_, work, child.result, child.streams);
  running_.push_back(child);
}

void Children::watch(Child& child) const {
  if (!kHasSanitizers || child.too_large || resident_bytes(child.id) <= limits_.bytes) return;
  child.too_large = true;
  ::kill(child.id, SIGKILL);
}

std::pair<std::size_t, Ending> Children::wait() {
  for (;;) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Child& child = running_[i];
      int status = 0;
      watch(child);
      rusage used = {};
      if (::wait4(child.id, &status, WNOHANG, &used) != child.id) continue;
      Ending ending{content_of(child.result), content_of(child.streams), how_it_died(status), 0};
      if (child.too_large) ending.died = "memory";
      ending.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
      ::close(child.result);
      ::close(child.streams);
      std::error_code ignored;  // it may have left nothing
      std::filesystem::remove_all(folder_of(child.id), ignored);
      const std::size_t number = child.number;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      return {number, std::move(ending)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Ending in_child(const Limits& limits, const std::function<std::string()>& work) {
  Children children(limits);
  children.start(0, work);
  return children.wait().second;
}

}  // namespace trainyard::fuzz
