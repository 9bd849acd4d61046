// Runs the tests if there is a device; else, and for a test that asks for more than there is, ends
// with 77, which ctest reports as skipped. A failure is not hidden by a test that was skipped, so
// that the program may also be run as a whole.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <string>

#include "tests/gpu/device.h"

namespace {

constexpr int kSkipped = 77;

// doctest counts an exception of any kind as a failure; this tells a test that has to be skipped
// from one that failed, so that a run of many tests hides neither.
std::string skipped;  // why the last test was, or empty
int skips = 0, failures = 0;

struct Counts : doctest::IReporter {
  explicit Counts(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override { skipped.clear(); }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (stats.testCaseSuccess) return;
    if (!skipped.empty() && stats.numAssertsFailedCurrentTest == 0) {
      ++skips;
      std::printf("skipped: %s\n", skipped.c_str());
    } else {
      ++failures;
    }
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("counts", 1, Counts);

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
  return skips > 0 && failures == 0 ? kSkipped : result;
}
