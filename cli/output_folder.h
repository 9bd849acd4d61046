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

// Every file is written to a temporary name in the same folder, synced and renamed; the folder is
// synced at the end. After an error or a signal the folder holds what it held before, a new one is
// gone.
class OutputFolder {
 public:
  // Creates the folder or opens it, so that a simulation is not run in vain. Throws
  // EnvironmentError if it is a file, cannot be written, is being written by another run, or holds
  // something else than an earlier result and `force` is not set.
  OutputFolder(std::string path, bool force, Interrupts& interrupts);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Throws EnvironmentError; then nothing has been written. `inputs` are files that must not be
  // overwritten, whatever their names. Call it once.
  void write(const std::vector<OutputFile>& files, const std::vector<std::string>& inputs);

  const std::string& path() const { return path_; }

 private:
  void create();
  void check_writable();
  void check_contents(bool force) const;
  void check_targets(const std::vector<OutputFile>& files,
                     const std::vector<std::string>& inputs) const;
  void write_temporary(const OutputFile& file);
  void remove_leftovers();
  [[noreturn]] void fail(const std::string& name, int error) const;

  std::string path_;
  Interrupts& interrupts_;
  int folder_ = -1;
  std::vector<std::string> created_;      // folders, outermost first
  std::vector<std::string> temporaries_;  // names in the folder
};

}  // namespace trainyard::cli
