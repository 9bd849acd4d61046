#include "tests/fuzz/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace trainyard::fuzz {

namespace fs = std::filesystem;

fs::path folder_of(int process) {
  return fs::temp_directory_path() / fmt::format("trainyard-fuzz-{}", process);
}

Folder::Folder() : path_(folder_of(::getpid())) {
  fs::remove_all(path_);
  fs::create_directories(path_);
  fs::current_path(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  fs::current_path("/", ignored);
  fs::remove_all(path_, ignored);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string content_of_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace trainyard::fuzz
