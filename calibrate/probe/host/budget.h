// Limits of a measurement: time, and the user's Ctrl-C. Progress on a terminal.
#pragma once

#include <chrono>
#include <string>

namespace trainyard::probe {

class Budget {
 public:
  explicit Budget(double seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
  double spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double left() const { return seconds_ - spent(); }
  bool over() const { return left() <= 0; }

 private:
  double seconds_;
  std::chrono::steady_clock::time_point begin_;
};

// From now on SIGINT, SIGTERM and SIGHUP only set a flag; a second one ends the program at once.
void catch_interrupts();
// The signal that came, or 0. Probes ask between two samples and stop.
int interrupt_signal();

// One line on standard error that is written over, with the time left. Silent unless standard error
// is a terminal.
class Progress {
 public:
  explicit Progress(const Budget& whole);
  void show(const std::string& text);
  void note(const std::string& text);  // a line that stays; also without a terminal
  void end();

 private:
  const Budget& whole_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace trainyard::probe
