// What is made once for all who ask.
#include "sim/base/threads/made_once.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace trainyard;

TEST_CASE("what is asked for again is not made again, and what differs is made apart") {
  MadeOnce<std::string, std::string> known;
  int made = 0;
  const auto ask = [&](const std::string& what, std::int64_t number) {
    return known.of({number}, what, [&] {
      ++made;
      return what + "!";
    });
  };
  const auto first = ask("a", 1);
  CHECK(*first == "a!");
  CHECK(ask("a", 1) == first);
  CHECK(*ask("b", 1) == "b!");  // of the same key
  CHECK(*ask("b", 2) == "b!");
  CHECK(ask("a", 1) == first);
  CHECK(made == 3);
}

TEST_CASE("threads that ask at once are given the same") {
  MadeOnce<int, int> known;
  std::vector<std::shared_ptr<const int>> given(8);
  std::vector<std::thread> threads;
  for (std::shared_ptr<const int>& own : given)
    threads.emplace_back([&] { own = known.of({}, 7, [] { return 49; }); });
  for (std::thread& thread : threads)
    thread.join();
  for (const std::shared_ptr<const int>& own : given)
    CHECK(own == given.front());
}
