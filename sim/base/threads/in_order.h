// The same work on several threads, with results that do not tell how many there were.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace trainyard {

// work(i) for every i in [0, count), on at most `jobs` threads. Throws what the lowest failing i
// threw; the others are finished first. Requires: work may be called from several threads at once.
template <class T>
std::vector<T> in_order(std::size_t count, int jobs, const std::function<T(std::size_t)>& work) {
  std::vector<T> results(count);
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next = 0;
  const auto work_off = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        results[i] = work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t others = std::min(count, static_cast<std::size_t>(std::max(jobs, 1)));
  try {
    for (std::size_t i = 1; i < others; ++i)
      threads.emplace_back(work_off);
  } catch (const std::system_error&) {
    // A machine that gives no more threads: those there are do the work.
  }
  work_off();
  for (std::thread& thread : threads)
    thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace trainyard
