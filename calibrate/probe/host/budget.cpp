#include "budget.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace trainyard::probe {
namespace {

volatile std::sig_atomic_t caught = 0;

void remember(int signal) {
  caught = signal;
}

}  // namespace

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      continue;  // nohup
    action = {};
    action.sa_handler = remember;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(signal, &action, nullptr);
  }
}

int interrupt_signal() {
  return caught;
}

Progress::Progress(const Budget& whole) : whole_(whole), terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || (shown_ && now - last_ < std::chrono::milliseconds(100))) return;
  const int left = static_cast<int>(std::max(0.0, whole_.left()) + 0.5);
  std::fprintf(stderr, "\r\033[K%.60s  (at most %d:%02d left)", text.c_str(), left / 60, left % 60);
  std::fflush(stderr);
  shown_ = true;
  last_ = now;
}

void Progress::note(const std::string& text) {
  end();
  std::fprintf(stderr, "trainyard-probe: %s\n", text.c_str());
}

void Progress::end() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace trainyard::probe
