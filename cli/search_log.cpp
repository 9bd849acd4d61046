#include "cli/search_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/commands/unknown_name.h"
#include "cli/exit_code.h"

namespace trainyard::cli {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw EnvironmentError(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

[[noreturn]] void refuse(const std::string& path, std::string message, std::string hint) {
  Diagnostic diagnostic;
  diagnostic.at = {path, 1, 1};
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  throw ScenarioError({std::move(diagnostic)});
}

std::string content_of(int file, const std::string& path) {
  std::string content;
  std::string buffer(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, "cannot be read", errno);
    if (count == 0) return content;
    content.append(buffer, 0, static_cast<std::size_t>(count));
  }
}

}  // namespace

SearchLog::SearchLog(std::string path, const search::JournalHead& head, bool resume)
    : path_(std::move(path)) {
  if (path_.empty()) return;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (resume ? 0 : O_EXCL);
  constexpr mode_t kMode = 0666;
  file_ = ::open(path_.c_str(), flags, kMode);
  if (file_ < 0 && errno == EEXIST)
    throw UsageError(
        fmt::format("{} is there already: --resume goes on with it, or remove it", path_));
  if (file_ < 0) fail(path_, "cannot be written", errno);
  struct stat status = {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode))
    throw EnvironmentError(fmt::format("{}: is no regular file", path_));
  if (resume && status.st_size > 0) read_known(head);
  if (known_.empty() && ::lseek(file_, 0, SEEK_END) == 0) write(to_line(head));
}

SearchLog::~SearchLog() {
  if (file_ >= 0) ::close(file_);
}

void SearchLog::read_known(const search::JournalHead& head) {
  const std::string content = content_of(file_, path_);
  // Stopped in its first line: nothing is lost by beginning anew.
  if (content.find('\n') == std::string::npos && to_line(head).starts_with(content)) {
    if (::ftruncate(file_, 0) != 0) fail(path_, "cannot be written", errno);
    return;
  }
  search::Journal journal = search::read_journal(content, path_);
  check_space(journal, head, path_);
  const search::Shard &own = journal.head.shard, &wanted = head.shard;
  if (own.index != wanted.index || own.count != wanted.count)
    refuse(path_,
           fmt::format("this is the log of shard {}/{}, not of {}/{}", own.index + 1, own.count,
                       wanted.index + 1, wanted.count),
           "give each shard a log of its own");
  if (journal.head.exhaustive && !head.exhaustive)
    refuse(path_, "this is the log of a search with --exhaustive", "go on with --exhaustive, too");
  if (::ftruncate(file_, static_cast<off_t>(journal.whole)) != 0)
    fail(path_, "cannot be written", errno);
  known_ = std::move(journal.trials);
}

void SearchLog::write(const std::string& line) {
  if (file_ < 0) return;
  const std::string text = line + "\n";
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t count = ::write(file_, left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, "cannot be written", errno);
    left.remove_prefix(static_cast<std::size_t>(count));
  }
}

search::Journal read_log(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_input(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat status = {};
  std::string content;
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  if (regular) content = content_of(file, path);
  ::close(file);
  if (!regular) fail_input(path, "is no regular file");
  return search::read_journal(content, path);
}

void check_space(const search::Journal& journal, const search::JournalHead& head,
                 const std::string& path) {
  if (journal.head.space == head.space && journal.head.size == head.size) return;
  refuse(path,
         fmt::format("this is the log of another search: of {} with {} configurations, space {}; "
                     "this one is of {} with {}, space {}",
                     journal.head.name, journal.head.size, journal.head.space, head.name, head.size,
                     head.space),
         "a scenario, --set option, preset or version that changes begins another; give it a log "
         "of its own");
}

}  // namespace trainyard::cli
