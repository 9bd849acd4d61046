// Runs the tests if there is a device; else, and for a test that asks for more than there is, ends
// with 77, which ctest reports as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <string>

#include "tests/gpu/device.h"

namespace {

constexpr int kSkipped = 77;

// doctest counts an exception of any kind as a failure; this keeps the word of the test that it has
// to be skipped.
std::string skipped;

}  // namespace

REGISTER_EXCEPTION_TRANSLATOR(const trainyard::probe::test::Skip& skip) {
  skipped = skip.why;
  return doctest::String("skipped: ") + skip.why.c_str();
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  bool listing = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    listing = listing || word.find("list") != std::string::npos || word == "-ltc";
  }
  if (!listing) {
    try {
      trainyard::probe::device_count();
    } catch (const trainyard::probe::NoDevice& none) {
      std::printf("skipped: %s\n", none.what());
      return kSkipped;
    }
  }
  const int result = context.run();
  if (!skipped.empty()) {
    std::printf("skipped: %s\n", skipped.c_str());
    return kSkipped;
  }
  return result;
}
