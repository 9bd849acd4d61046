// Typed indices. A Rank cannot index a vector of links; the compiler says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trainyard {

enum class Rank : std::uint32_t {};    // one GPU of the job, 0 .. world_size - 1
enum class NodeId : std::uint32_t {};  // a vertex of the topology: GPU, switch, NIC, host bridge
enum class LinkId : std::uint32_t {};  // a directed capacity of the topology

template <class Id>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}

// The dense ids [0, size), for range-for.
template <class Id>
class IdRange {
 public:
  explicit IdRange(std::size_t size) : size_(size) {}
  struct Iterator {
    std::size_t at;
    Id operator*() const { return static_cast<Id>(at); }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    friend bool operator==(Iterator, Iterator) = default;
  };
  Iterator begin() const { return {0}; }
  Iterator end() const { return {size_}; }

 private:
  std::size_t size_;
};

// A vector indexed by one kind of id. Ids are dense and start at zero.
template <class Id, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t n, T value = T{}) : items_(n, value) {}

  Id push_back(T item) {
    items_.push_back(std::move(item));
    return static_cast<Id>(items_.size() - 1);
  }
  T& operator[](Id id) { return items_[index(id)]; }
  const T& operator[](Id id) const { return items_[index(id)]; }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void reserve(std::size_t n) { items_.reserve(n); }
  IdRange<Id> ids() const { return IdRange<Id>(items_.size()); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace trainyard
