#include "cli/interrupts.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cli/exit_code.h"

namespace trainyard::cli {
namespace {

constexpr int kStopWatching = SIGUSR2;  // sent to the watcher only, by the destructor

// The signals that end the program, without those that were ignored from the start (nohup).
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&set, signal);
  }
  sigaddset(&set, kStopWatching);
  return set;
}

void exit_internal(int) {
  constexpr char kText[] = "trainyard: this is a mistake in trainyard, not in your files\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(static_cast<int>(ExitCode::internal));
}

}  // namespace

struct Interrupts::State {
  struct Leftover {
    int folder;  // AT_FDCWD with flag AT_REMOVEDIR: a folder by path
    std::string name;
    int flags;
  };
  std::mutex mutex;
  std::vector<Leftover> leftovers;  // in the order in which they were made
  std::atomic<bool> stopping = false;
  pid_t child = 0;

  // It may need a while to keep what it has; signals that come meanwhile are passed on as well.
  void end_child(int signal, const sigset_t& signals) const {
    siginfo_t ended = {};
    ::kill(child, signal);
    while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
      constexpr timespec kPoll = {0, 20'000'000};
      const int another = ::sigtimedwait(&signals, nullptr, &kPoll);
      if (another > 0 && another != kStopWatching) ::kill(child, another);
    }
  }

  void watch(sigset_t signals) {
    int signal = 0;
    for (;;) {
      if (sigwait(&signals, &signal) != 0) continue;
      if (signal == kStopWatching) {
        if (stopping) return;
        continue;
      }
      mutex.lock();  // Never released: the main thread makes no more files.
      if (child > 0) end_child(signal, signals);
      for (auto i = leftovers.rbegin(); i != leftovers.rend(); ++i)
        ::unlinkat(i->folder, i->name.c_str(), i->flags);
      ::_exit(128 + signal);
    }
  }
};

Interrupts::Interrupts() : state_(std::make_unique<State>()) {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  watcher_ = std::thread([state = state_.get(), signals] { state->watch(signals); });
}

Interrupts::~Interrupts() {
  state_->stopping = true;
  pthread_kill(watcher_.native_handle(), kStopWatching);
  watcher_.join();
}

Interrupts::Hold::Hold(Interrupts& interrupts) : state_(*interrupts.state_) {
  state_.mutex.lock();
}
Interrupts::Hold::~Hold() {
  state_.mutex.unlock();
}

void Interrupts::Hold::add_file(int folder, std::string name) {
  state_.leftovers.push_back({folder, std::move(name), 0});
}
void Interrupts::Hold::add_folder(std::string path) {
  state_.leftovers.push_back({AT_FDCWD, std::move(path), AT_REMOVEDIR});
}
void Interrupts::Hold::forget() {
  state_.leftovers.clear();
}
void Interrupts::Hold::set_child(pid_t child) {
  state_.child = child;
}

void set_signal_dispositions() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGABRT, exit_internal);
}

}  // namespace trainyard::cli
