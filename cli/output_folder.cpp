#include "cli/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/exit_code.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

constexpr std::string_view kSuffix = ".trainyard-tmp";
// Every summary of ours has this key near its start.
constexpr std::string_view kSummary = "summary.json", kMark = "\"trainyard\"";

std::string temporary_name(std::string_view name) {
  return fmt::format(".{}{}", name, kSuffix);
}

// Returns 0 or the errno of the call that failed. A full disk may show only when closing.
int write_and_close(int descriptor, std::string_view text) {
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (error == 0 && ::fsync(descriptor) != 0 && errno != EINVAL) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool holds_result(int folder) {
  const int file =
      ::openat(folder, kSummary.data(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  std::array<char, 256> start{};
  const ssize_t size = ::read(file, start.data(), start.size());
  ::close(file);
  return size > 0 && std::string_view(start.data(), static_cast<std::size_t>(size)).find(kMark) !=
                         std::string_view::npos;
}

bool is_empty(int folder) {
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    // What a killed run has left is no content.
    if (name != "." && name != ".." && !name.ends_with(kSuffix)) return false;
  }
  return true;
}

}  // namespace

OutputFolder::OutputFolder(std::string path, bool force, Interrupts& interrupts)
    : path_(std::move(path)), interrupts_(interrupts) {
  while (path_.size() > 1 && path_.back() == '/')
    path_.pop_back();
  if (path_.empty()) throw UsageError("the output folder has no name");
  try {
    create();
    check_writable();
    check_contents(force);
  } catch (...) {
    remove_leftovers();
    throw;
  }
}

OutputFolder::~OutputFolder() {
  remove_leftovers();
}

void OutputFolder::fail(const std::string& name, int error) const {
  throw EnvironmentError(fmt::format("{}{}{}: {}", escape_control(path_), name.empty() ? "" : "/",
                                     escape_control(name), std::strerror(error)));
}

// Makes the folder and those above it, and opens it.
void OutputFolder::create() {
  for (std::size_t end = path_.find('/', 1);; end = path_.find('/', end + 1)) {
    const std::string part = path_.substr(0, end);
    {
      Interrupts::Hold hold(interrupts_);
      if (::mkdir(part.c_str(), 0777) == 0) {
        created_.push_back(part);
        hold.add_folder(part);
      } else if (errno != EEXIST && errno != EISDIR) {
        fail("", errno);
      }
    }
    if (end == std::string::npos) break;
  }
  folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0 && errno == ENOTDIR)
    throw EnvironmentError(
        fmt::format("{}: is not a folder; choose another -o", escape_control(path_)));
  if (folder_ < 0) fail("", errno);
  // The lock is the kernel's: it ends with the process and is never stale.
  if (::flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw EnvironmentError(
        fmt::format("{}: another trainyard is writing here", escape_control(path_)));
}

// Asks the file system by making a file: permission bits do not tell of read-only mounts and
// quotas.
void OutputFolder::check_writable() {
  const std::string probe = temporary_name("probe");
  ::unlinkat(folder_, probe.c_str(), 0);
  const int file = ::openat(folder_, probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("", errno);
  ::close(file);
  ::unlinkat(folder_, probe.c_str(), 0);
}

void OutputFolder::check_contents(bool force) const {
  if (force || is_empty(folder_) || holds_result(folder_)) return;
  throw EnvironmentError(fmt::format(
      "{}: is not empty and holds no earlier result; choose another folder or use --force",
      escape_control(path_)));
}

void OutputFolder::check_targets(const std::vector<OutputFile>& files,
                                 const std::vector<std::string>& inputs) const {
  for (const OutputFile& file : files) {
    struct stat target = {};
    if (::fstatat(folder_, file.name.c_str(), &target, 0) != 0) {
      if (errno == ENOENT) continue;
      fail(file.name, errno);
    }
    if (!S_ISREG(target.st_mode))
      throw EnvironmentError(fmt::format("{}/{}: is not a regular file", escape_control(path_),
                                         escape_control(file.name)));
    for (const std::string& input : inputs) {
      struct stat source = {};
      if (::stat(input.c_str(), &source) == 0 && is_same_file(source, target))
        throw EnvironmentError(fmt::format("{}/{}: is an input of this run; choose another -o",
                                           escape_control(path_), escape_control(file.name)));
    }
  }
}

void OutputFolder::write_temporary(const OutputFile& file) {
  const std::string name = temporary_name(file.name);
  int descriptor = -1;
  {
    Interrupts::Hold hold(interrupts_);
    ::unlinkat(folder_, name.c_str(), 0);  // of a run that was killed; we hold the lock
    descriptor = ::openat(folder_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) fail(file.name, errno);
    temporaries_.push_back(name);
    hold.add_file(folder_, name);
  }
  const int error = write_and_close(descriptor, file.content);
  if (error != 0) fail(file.name, error);
}

void OutputFolder::write(const std::vector<OutputFile>& files,
                         const std::vector<std::string>& inputs) {
  check_targets(files, inputs);
  try {
    for (const OutputFile& file : files)
      write_temporary(file);
    Interrupts::Hold hold(interrupts_);
    for (std::size_t i = 0; i < files.size(); ++i)
      if (::renameat(folder_, temporaries_[i].c_str(), folder_, files[i].name.c_str()) != 0)
        fail(files[i].name, errno);
    temporaries_.clear();
    created_.clear();
    hold.forget();
    // Without this a power cut could undo the renames. Some file systems cannot; then they need
    // not.
    if (::fsync(folder_) != 0 && errno != EINVAL) fail("", errno);
  } catch (...) {
    remove_leftovers();
    throw;
  }
}

void OutputFolder::remove_leftovers() {
  Interrupts::Hold hold(interrupts_);
  for (const std::string& name : temporaries_)
    ::unlinkat(folder_, name.c_str(), 0);
  temporaries_.clear();
  for (auto i = created_.rbegin(); i != created_.rend(); ++i)
    ::rmdir(i->c_str());
  created_.clear();
  hold.forget();
  if (folder_ >= 0) ::close(folder_);
  folder_ = -1;
}

}  // namespace trainyard::cli
