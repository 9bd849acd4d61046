#include "cli/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/exit_code.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".trainyard-tmp";
// Every summary of ours has this key near its start, that of a comparison and of a search another
// of these before any label.
constexpr std::string_view kSummary = "summary.json", kMark = "\"trainyard\"";
constexpr std::string_view kOfComparison = "\"baseline\":", kOfSearch = "\"objectives\":";
constexpr std::string_view kOfStep = "\"label\":";
// What a result consists of; anything else in its folder is the user's.
constexpr std::array<std::string_view, 5> kResultFiles = {
    "summary.json", "trace.pftrace.gz", "report.html", "search.html", "configurations.jsonl"};

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

// The kind of result whose summary lies in the folder; nothing if there is none.
std::optional<FolderKind> result_in(int folder) {
  const int file =
      ::openat(folder, kSummary.data(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::array<char, 4096> start{};
  const ssize_t size = ::read(file, start.data(), start.size());
  ::close(file);
  if (size <= 0) return std::nullopt;
  const std::string_view text(start.data(), static_cast<std::size_t>(size));
  if (text.find(kMark) == std::string_view::npos) return std::nullopt;
  const std::size_t label = text.find(kOfStep);
  if (text.find(kOfSearch) < label) return FolderKind::search;
  return text.find(kOfComparison) < label ? FolderKind::comparison : FolderKind::step;
}

std::string_view command_of(FolderKind kind) {
  return kind == FolderKind::comparison ? "compare" : kind == FolderKind::search ? "search" : "run";
}

std::vector<std::string> entries_of(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// What a killed run has left is no content.
bool is_empty(int folder) {
  const std::vector<std::string> names = entries_of(folder);
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(kSuffix); });
}

int open_folder(const std::string& path, int flags = 0) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
}

// The lock is the kernel's: it ends with the process and is never stale.
bool lock(int folder) {
  return ::flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// Removes our files from a folder and moves the others to another; all are ours if there is none.
void bring_back(int from, int to) {
  for (const std::string& name : entries_of(from)) {
    const bool is_ours =
        to < 0 || name.ends_with(kSuffix) ||
        std::find(kResultFiles.begin(), kResultFiles.end(), name) != kResultFiles.end();
    if (is_ours)
      ::unlinkat(from, name.c_str(), 0);
    else
      ::renameat2(from, name.c_str(), to, name.c_str(), RENAME_NOREPLACE);
  }
}

// A folder that others know by more than its name stays where it is.
bool is_in_use(const fs::path& folder, int descriptor) {
  std::error_code code;
  const fs::path here = fs::current_path(code);
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), here.begin(), here.end());
  struct stat own = {}, above = {};
  const bool is_mounted = ::fstat(descriptor, &own) != 0 ||
                          ::stat(folder.parent_path().c_str(), &above) != 0 ||
                          own.st_dev != above.st_dev;
  return code || end == folder.end() || is_mounted;
}

}  // namespace

OutputFolder::OutputFolder(std::string path, bool force, Interrupts& interrupts, FolderKind kind)
    : path_(std::move(path)), interrupts_(interrupts), kind_(kind) {
  while (path_.size() > 1 && path_.back() == '/')
    path_.pop_back();
  if (path_.empty()) throw UsageError("the output folder has no name");
  try {
    make_parents();
    open_old();
    check_contents(force);
    make_new();
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

// Makes the folders above, and that of files among others.
void OutputFolder::make_parents() {
  for (std::size_t end = path_.find('/', 1);; end = path_.find('/', end + 1)) {
    if (end == std::string::npos && kind_ != FolderKind::files) return;
    const std::string part = path_.substr(0, end);
    Interrupts::Hold hold(interrupts_);
    if (::mkdir(part.c_str(), 0777) == 0) {
      created_.push_back(part);
      hold.add_folder(part);
    } else if (errno != EEXIST && errno != EISDIR) {
      fail("", errno);
    }
    if (end == std::string::npos) return;
  }
}

void OutputFolder::open_old() {
  old_ = open_folder(path_);
  if (old_ < 0 && errno == ENOTDIR)
    throw EnvironmentError(
        fmt::format("{}: is not a folder; choose another -o", escape_control(path_)));
  if (old_ < 0 && errno != ENOENT) fail("", errno);
  std::error_code code;
  old_path_ = fs::weakly_canonical(fs::absolute(path_, code), code).string();
  if (code) fail("", code.value());
  if (old_ >= 0 && !lock(old_))
    throw EnvironmentError(
        fmt::format("{}: another trainyard is writing here", escape_control(path_)));
}

void OutputFolder::check_contents(bool force) const {
  if (force || old_ < 0 || is_empty(old_)) return;
  const std::optional<FolderKind> held = result_in(old_);
  if (!held)
    throw EnvironmentError(fmt::format(
        "{}: is not empty and holds no earlier result; choose another folder or use --force",
        escape_control(path_)));
  if (*held == kind_) return;
  throw EnvironmentError(
      fmt::format("{}: holds the result of {}; choose another folder with -o, or replace it with "
                  "--force",
                  escape_control(path_), command_of(*held)));
}

// Beside the old folder or, where that must stay or its parent is closed to us, inside it.
void OutputFolder::make_new() {
  const fs::path old(old_path_);
  const bool stays = old_ >= 0 && (kind_ == FolderKind::files || is_in_use(old, old_));
  beside_ =
      !stays &&
      make_new_at(
          (old.parent_path() / fmt::format(".{}{}", old.filename().string(), kSuffix)).string());
  if (!beside_ && old_ < 0) fail("", errno);
  if (!beside_ && !make_new_at((old / fmt::format(".result{}", kSuffix)).string())) fail("", errno);
}

// False, with errno, if no folder can be made there.
bool OutputFolder::make_new_at(const std::string& path) {
  {
    Interrupts::Hold hold(interrupts_);
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return false;
    new_path_ = path;
    hold.add_folder(path);
  }
  new_ = open_folder(path, O_NOFOLLOW);
  if (new_ < 0) fail("", errno);
  if (!lock(new_)) {
    new_path_.clear();  // it is another's
    throw EnvironmentError(
        fmt::format("{}: another trainyard is writing here", escape_control(path_)));
  }
  // Of a run that was killed. Files of others are here only if it had just exchanged the folders.
  const bool may_hold_others = old_ >= 0 && fs::path(path).parent_path() != old_path_;
  bring_back(new_, may_hold_others ? old_ : -1);
  return true;
}

void OutputFolder::check_targets(const std::vector<OutputFile>& files,
                                 const std::vector<std::string>& inputs) const {
  if (old_ < 0) return;
  for (const OutputFile& file : files) {
    struct stat target = {};
    if (::fstatat(old_, file.name.c_str(), &target, 0) != 0) {
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

void OutputFolder::write_new(const OutputFile& file) {
  int descriptor = -1;
  {
    Interrupts::Hold hold(interrupts_);
    descriptor = ::openat(new_, file.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) fail(file.name, errno);
    written_.push_back(file.name);
    hold.add_file(new_, file.name);
  }
  const int error = write_and_close(descriptor, file.content);
  if (error != 0) fail(file.name, error);
}

// Requires: signals are held.
void OutputFolder::put_in_place(const std::vector<OutputFile>& files) {
  struct stat before = {};
  if (old_ >= 0 && ::fstat(old_, &before) == 0) ::fchmod(new_, before.st_mode & 07777);
  // Without this a power cut could undo what follows. Some file systems cannot; then they need not.
  if (::fsync(new_) != 0 && errno != EINVAL) fail("", errno);
  const char *from = new_path_.c_str(), *to = old_path_.c_str();
  if (beside_ && old_ < 0) {
    if (::rename(from, to) != 0) fail("", errno);
    new_path_.clear();
    return;
  }
  if (beside_ && ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
    bring_back(old_, new_);
    ::rmdir(from);
    new_path_.clear();
    return;
  }
  for (const OutputFile& file : files)
    if (::renameat(new_, file.name.c_str(), old_, file.name.c_str()) != 0) fail(file.name, errno);
  // Of a version that wrote its temporary files here.
  for (const std::string& name : entries_of(old_))
    if (name.ends_with(kSuffix)) ::unlinkat(old_, name.c_str(), 0);
  if (::fsync(old_) != 0 && errno != EINVAL) fail("", errno);
}

void OutputFolder::write(const std::vector<OutputFile>& files,
                         const std::vector<std::string>& inputs) {
  check_targets(files, inputs);
  try {
    for (const OutputFile& file : files)
      write_new(file);
    Interrupts::Hold hold(interrupts_);
    put_in_place(files);
    written_.clear();
    created_.clear();
    if (!new_path_.empty()) ::rmdir(new_path_.c_str());
    new_path_.clear();
    hold.forget();
    const int above = open_folder(fs::path(old_path_).parent_path().string());
    if (above >= 0) {
      ::fsync(above);
      ::close(above);
    }
  } catch (...) {
    remove_leftovers();
    throw;
  }
}

void OutputFolder::remove_leftovers() {
  Interrupts::Hold hold(interrupts_);
  for (const std::string& name : written_)
    ::unlinkat(new_, name.c_str(), 0);
  written_.clear();
  if (!new_path_.empty()) ::rmdir(new_path_.c_str());
  new_path_.clear();
  for (auto i = created_.rbegin(); i != created_.rend(); ++i)
    ::rmdir(i->c_str());
  created_.clear();
  hold.forget();
  for (int* folder : {&old_, &new_}) {
    if (*folder >= 0) ::close(*folder);
    *folder = -1;
  }
}

}  // namespace trainyard::cli
