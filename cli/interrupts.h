// Ends the program at SIGINT, SIGTERM or SIGHUP without leaving half-written files behind.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace trainyard::cli {

// A thread of its own waits for the signals, so no code runs in a signal handler and nothing is
// global. Requires: made before any other thread, which then inherits the blocked signals.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // While this lock is held, a signal waits. Whoever holds it leaves `leftovers` and the disk in
  // step.
  class Hold;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread watcher_;
};

class Interrupts::Hold {
 public:
  explicit Hold(Interrupts& interrupts);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // A file (relative to an open folder) or an empty folder that a signal removes.
  void add_file(int folder, std::string name);
  void add_folder(std::string path);
  void forget();  // everything added so far

  // A program that a signal is passed on to; the end waits until it has ended. 0: none.
  void set_child(pid_t child);

 private:
  State& state_;
};

// SIGPIPE and SIGXFSZ become errors of write(), and a failed check of ours ends with code 70.
void set_signal_dispositions();

}  // namespace trainyard::cli
