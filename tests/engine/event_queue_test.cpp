#include "sim/engine/event_queue.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <queue>
#include <tuple>
#include <vector>

#include "sim/base/random.h"
#include "tests/support/print.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Key = std::tuple<Duration, Phase, std::uint32_t>;  // the subject numbers the pushes

Key key(const Event& event) {
  return {event.at, event.phase, event.subject};
}

struct BinaryHeap {
  void push(const Event& event) { heap.push(event); }
  Event pop() {
    const Event event = heap.top();
    heap.pop();
    return event;
  }
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return key(a) > key(b); }
  };
  std::priority_queue<Event, std::vector<Event>, Later> heap;
};

struct SortedVector {  // the next event last
  void push(const Event& event) {
    const auto later = [](const Event& a, const Event& b) { return key(a) > key(b); };
    list.insert(std::upper_bound(list.begin(), list.end(), event, later), event);
  }
  Event pop() {
    const Event event = list.back();
    list.pop_back();
    return event;
  }
  std::vector<Event> list;
};

// Half of the delays are short, some are zero and go to any phase, so ties are the rule.
Event random_event(SplitMix64& random, Duration now, std::uint32_t sequence) {
  constexpr std::uint64_t kRange[] = {1, 4, 1000, 3'000'000'000'000};
  const auto delay = static_cast<std::int64_t>(random.below(kRange[random.below(4)]));
  return {now + Duration(delay), sequence, 0, static_cast<Phase>(random.below(2)), 0};
}

template <class Other>
void check_same_order(std::size_t pending, std::size_t operations) {
  SplitMix64 random(pending);
  EventQueue queue;
  Other other;
  std::uint32_t sequence = 0;
  std::size_t wrong = 0;
  Duration last{};
  for (std::size_t i = 0; i < operations; ++i) {
    if (queue.size() < pending && (queue.empty() || random.below(3) != 0)) {
      const Event event = random_event(random, queue.now(), sequence++);
      queue.push(event);
      other.push(event);
    } else {
      const Event event = queue.pop();
      wrong += key(event) != key(other.pop());
      wrong += event.at < last;
      last = event.at;
    }
  }
  CHECK(wrong == 0);
}

// Looks at what is pending, moves all of it on, and the clock to before the next event.
void check_moves(std::uint64_t seed) {
  SplitMix64 random(seed);
  EventQueue queue;
  std::vector<Event> list;
  std::uint32_t sequence = 0;
  std::size_t wrong = 0;
  const auto earlier = [](const Event& a, const Event& b) { return key(a) < key(b); };
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t kind = random.below(10);
    const auto next = std::min_element(list.begin(), list.end(), earlier);
    if (kind < 5 && list.size() < 300) {
      const Event event = random_event(random, queue.now(), sequence++);
      queue.push(event);
      list.push_back(event);
    } else if (kind < 7 && !list.empty()) {
      wrong += key(queue.pop()) != key(*next);
      list.erase(next);
    } else if (kind < 9 && !list.empty() && queue.instant_is_over()) {
      wrong += queue.next() != next->at;
      const auto gap = static_cast<std::uint64_t>((next->at - queue.now()).count());
      queue.advance(queue.now() + Duration(static_cast<std::int64_t>(random.below(gap + 1))));
    } else if (queue.instant_is_over()) {
      const Duration by(static_cast<std::int64_t>(random.below(100'000)));
      queue.move_on(by);
      for (Event& event : list)
        event.at += by;
      std::vector<Event> pending;
      queue.pending(pending);
      std::sort(list.begin(), list.end(), earlier);
      wrong += !std::ranges::equal(pending, list, {}, key, key);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("events may be looked at and moved on") {
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    check_moves(seed);
}

TEST_CASE("radix heap, binary heap and sorted vector give the same sequence") {
  check_same_order<BinaryHeap>(30'000, 1'000'000);
  check_same_order<BinaryHeap>(3, 200'000);
  check_same_order<SortedVector>(200, 1'000'000);
}

TEST_CASE("events of one instant leave by phase, then in the order they came") {
  EventQueue queue;
  const Duration at(7);
  queue.push({at, 1, 0, Phase::start, 0});
  queue.push({at, 2, 0, Phase::finish, 0});
  queue.push({at, 3, 0, Phase::start, 0});
  queue.push({at, 4, 0, Phase::finish, 0});
  for (std::uint32_t expected : {2U, 4U, 1U, 3U})
    CHECK(queue.pop().subject == expected);
  CHECK(queue.empty());
}

TEST_CASE("an event at the present time goes before those of a later phase that wait") {
  EventQueue queue;
  queue.push({Duration(5), 0, 0, Phase::start, 0});
  queue.push({Duration(5), 1, 0, Phase::start, 0});
  CHECK(queue.pop().subject == 0);
  queue.push({Duration(5), 3, 0, Phase::finish, 0});  // what began ends at once
  CHECK(queue.pop().subject == 3);
  CHECK(queue.pop().subject == 1);
}

TEST_CASE("the queue reaches the end of time") {
  EventQueue queue;
  const Duration end((std::int64_t{1} << 62) - 1);
  queue.push({end, 1, 0, Phase::finish, 0});
  queue.push({Duration(0), 0, 0, Phase::finish, 0});
  CHECK(queue.pop().at == Duration(0));
  CHECK(queue.pop().at == end);
}

TEST_CASE("an event in the past aborts the run") {
  EventQueue queue;
  queue.push({Duration(10), 0, 0, Phase::finish, 0});
  queue.pop();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest would report the abort as its own
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    queue.push({Duration(9), 0, 0, Phase::finish, 0});
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}
