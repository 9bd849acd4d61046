#include "tests/fuzz/program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "tests/fuzz/child.h"

namespace trainyard::fuzz {
namespace {

double cpu_seconds() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// A standard stream that goes to a file in memory for a while.
class Caught {
 public:
  explicit Caught(int stream) : stream_(stream), kept_(::dup(stream)), file_(memory_file()) {
    ::dup2(file_, stream_);
  }
  ~Caught() {
    ::dup2(kept_, stream_);
    ::close(kept_);
    ::close(file_);
  }
  Caught(const Caught&) = delete;
  Caught& operator=(const Caught&) = delete;
  std::string text() const { return content_of(file_); }

 private:
  int stream_, kept_, file_;
};

}  // namespace

Ran ran(const cli::Command& command) {
  std::fflush(nullptr);
  Ran result;
  const Caught out(STDOUT_FILENO);
  // Standard error stays where it is, in the file that the parent reads: the last words of a
  // command that dies are there.
  const auto said = static_cast<std::size_t>(::lseek(STDERR_FILENO, 0, SEEK_CUR));
  const double before = cpu_seconds();
  {
    cli::Console console(cli::ColorMode::never, false);
    cli::Interrupts interrupts;
    result.code = static_cast<int>(cli::execute(command, {console, interrupts}, false));
  }
  result.cpu_seconds = cpu_seconds() - before;
  result.out = out.text();
  result.err = content_of(STDERR_FILENO).substr(said);
  return result;
}

}  // namespace trainyard::fuzz
