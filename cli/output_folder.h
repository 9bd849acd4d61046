// A set of files that appears in a folder at once or not at all.
#pragma once

#include <string>
#include <vector>

#include "cli/interrupts.h"

namespace trainyard::cli {

struct OutputFile {
  std::string name;  // without a folder
  std::string content;
};

// What a folder holds: the result of one step, of a comparison, or the user's files among which
// ours are written.
enum class FolderKind { step, comparison, search, files };

// The files of a result are written into a new folder beside (".NAME.trainyard-tmp"), which then
// takes the place of the old one in one call of the kernel (renameat2): whenever the program ends,
// and be it by SIGKILL or a power cut, the folder is the old one or the new one, whole. Other files
// of the old folder move to the new one; a run that was killed between leaves them beside, and the
// next brings them back. Where a folder cannot be exchanged (the working folder, a mount point, a
// file system without renameat2) and among the user's files, each file is renamed for itself: after
// an error or another signal the folder still holds what it held before.
class OutputFolder {
 public:
  // Makes the folder beside, so that a simulation is not run in vain. Throws EnvironmentError if
  // the path is a file, cannot be written, is being written by another run, or holds something else
  // than an earlier result of the kind and `force` is not set.
  OutputFolder(std::string path, bool force, Interrupts& interrupts,
               FolderKind kind = FolderKind::step);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Throws EnvironmentError; then nothing has been written. `inputs` are files that must not be
  // overwritten, whatever their names. Call it once.
  void write(const std::vector<OutputFile>& files, const std::vector<std::string>& inputs);

  const std::string& path() const { return path_; }

 private:
  void make_parents();
  void open_old();
  void make_new();
  bool make_new_at(const std::string& path);
  void check_contents(bool force) const;
  void check_targets(const std::vector<OutputFile>& files,
                     const std::vector<std::string>& inputs) const;
  void write_new(const OutputFile& file);
  void put_in_place(const std::vector<OutputFile>& files);
  void remove_leftovers();
  [[noreturn]] void fail(const std::string& name, int error) const;

  std::string path_;
  Interrupts& interrupts_;
  FolderKind kind_;
  std::string old_path_, new_path_;  // without links, absolute; new_path_ is empty until it is made
  int old_ = -1, new_ = -1;          // -1: there is none
  bool beside_ = false;              // the new folder can take the old one's place
  std::vector<std::string> created_;  // folders above, outermost first
  std::vector<std::string> written_;  // names in the new folder
};

}  // namespace trainyard::cli
