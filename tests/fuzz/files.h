// Files of a test, and a folder of its own to work in.
#pragma once

#include <filesystem>
#include <string>

namespace trainyard::fuzz {

// Where the process of this number works.
std::filesystem::path folder_of(int process);

// That of this process: empty, and the working folder while it exists.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

 private:
  std::filesystem::path path_;
};

void write_file(const std::string& path, const std::string& text);
std::string content_of_file(const std::string& path);

}  // namespace trainyard::fuzz
