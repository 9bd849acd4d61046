// Runs the tests if there is a device; else, and for a test that asks for more than there is, ends
// with 77, which ctest reports as skipped. A failure is not hidden by a test that was skipped, so
// that the program may also be run as a whole.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <string>

#include "tests/gpu/device.h"

namespace {

constexpr int kSkipped = 77;

// doctest counts an exception of any kind as a failure; this keeps the word of the tests that have
// to be skipped, and tells them from those that failed.
std::string skipped;
bool case_is_skipped = false;
bool failed = false;

struct Watcher : doctest::IReporter {
  explicit Watcher(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override { case_is_skipped = false; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    failed = failed || stats.numAssertsFailedCurrentTest > 0 ||
             (!stats.testCaseSuccess && !case_is_skipped);
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

REGISTER_LISTENER("watcher", 1, Watcher);

REGISTER_EXCEPTION_TRANSLATOR(const trainyard::probe::test::Skip& skip) {
  case_is_skipped = true;
  if (skipped.find(skip.why) == std::string::npos)
    skipped += (skipped.empty() ? "" : "; ") + skip.why;
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
  if (skipped.empty()) return result;
  std::printf("skipped: %s\n", skipped.c_str());
  return failed ? result : kSkipped;
}
