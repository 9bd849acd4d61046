// Wrong scenarios and exactly what is said about each. tests/golden/wrong/NAME.txt holds the
// diagnostics of tests/scenario/wrong/NAME.json; TRAINYARD_UPDATE_GOLDEN=1 rewrites them.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scenario/temporary.h"
#include "tests/support/golden.h"
#include "tests/support/rooms.h"

using namespace trainyard;
namespace fs = std::filesystem;

TEST_CASE("each wrong scenario gets exactly its diagnostics") {
  std::vector<fs::path> files;
  const std::string folder = std::string(TRAINYARD_SOURCE_DIR) + "/tests/scenario/wrong";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  CHECK(files.size() >= 30);
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    // A preset's file is named by its path, whose beginning depends on where the program runs.
    std::string found = test::problems(file.string()) + "\n";
    const std::string root = std::string(TRAINYARD_SOURCE_DIR) + "/";
    for (std::size_t at = found.find(root); at != std::string::npos; at = found.find(root))
      found.erase(at, root.size());
    // Nor does it matter where the sources lie.
    const std::string above = " --root " + fs::path(TRAINYARD_SOURCE_DIR).parent_path().string();
    if (const std::size_t at = found.find(above); at != std::string::npos)
      found.replace(at, above.size(), " --root THE FOLDER ABOVE");
    CHECK(found == testing::golden("wrong/" + file.stem().string() + ".txt", found));
    CHECK(found.find(": error: ") != std::string::npos);
  }
}
