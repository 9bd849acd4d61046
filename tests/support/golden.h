// Golden files: text that a person has read once. TRAINYARD_UPDATE_GOLDEN=1 rewrites them, and the
// diff is the review.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace trainyard::testing {

// The text of tests/golden/<name>, after rewriting it with `actual` if asked to.
inline std::string golden(const std::string& name, const std::string& actual) {
  const std::filesystem::path path =
      std::filesystem::path(TRAINYARD_SOURCE_DIR) / "tests" / "golden" / name;
  if (const char* update = std::getenv("TRAINYARD_UPDATE_GOLDEN"); update && *update == '1') {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << actual;
  }
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace trainyard::testing
