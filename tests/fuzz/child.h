// Work in a process of its own: what crashes there, or takes too much, ends it and nothing else.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace trainyard::fuzz {

struct Limits {
  int cpu_seconds = 20;
  std::size_t bytes = std::size_t{4} << 30;
};

struct Ending {
  std::string said;     // what the work returned; empty if it did not come back
  std::string streams;  // what it wrote to standard output and standard error
  std::string died;     // "signal 6", "exit code 70", "more than 4 GiB", ...; empty: it came back
  double cpu_seconds = 0;
};

// Children at work, each under the number that it was started with.
class Children {
 public:
  explicit Children(Limits limits) : limits_(limits) {}

  // Starts `work` in a copy of this process.
  void start(std::size_t number, const std::function<std::string()>& work);
  std::size_t running() const { return running_.size(); }
  // Waits until one has ended. Requires: one is running.
  std::pair<std::size_t, Ending> wait();

 private:
  struct Child {
    std::size_t number;
    pid_t id;
    int result, streams;  // descriptors
    bool too_large = false;
  };
  void watch(Child& child) const;

  Limits limits_;
  std::vector<Child> running_;
};

// One piece of work, to its end.
Ending in_child(const Limits& limits, const std::function<std::string()>& work);

// A file in memory, and all that was written into it.
int memory_file();
std::string content_of(int descriptor);

}  // namespace trainyard::fuzz
