// A heap of numbered items whose keys may change. Each item is in at most one heap; where it is
// stands in a table that heaps may share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trainyard::engine {

template <class Key>
class MovableHeap {
 public:
  struct Item {
    Key key;
    std::uint32_t id;
  };
  using Places = std::vector<std::uint32_t>;  // by id

  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  // The item of the least key; of equal keys that of the least number.
  const Item& top() const { return items_.front(); }
  // Requires: the item is in this heap.
  const Key& key(std::uint32_t id, const Places& places) const { return items_[places[id]].key; }

  void insert(Key key, std::uint32_t id, Places& places) {
    items_.push_back({key, id});
    rise(items_.size() - 1, places);
  }
  // Requires: the item is in this heap.
  void erase(std::uint32_t id, Places& places) {
    const std::size_t at = places[id];
    const Item last = items_.back();
    items_.pop_back();
    if (at == items_.size()) return;
    items_[at] = last;
    settle(at, places);
  }
  // Requires: the item is in this heap.
  void change(std::uint32_t id, Key key, Places& places) {
    const std::size_t at = places[id];
    items_[at].key = key;
    settle(at, places);
  }

  // Makes every key so much more.
  void shift(const Key& by) {
    for (Item& item : items_)
      item.key += by;
  }

 private:
  static bool before(const Item& a, const Item& b) {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  }

  void settle(std::size_t at, Places& places) {
    if (at > 0 && before(items_[at], items_[(at - 1) / 2]))
      rise(at, places);
    else
      sink(at, places);
  }

  void rise(std::size_t at, Places& places) {
    const Item item = items_[at];
    while (at > 0 && before(item, items_[(at - 1) / 2])) {
      items_[at] = items_[(at - 1) / 2];
      places[items_[at].id] = static_cast<std::uint32_t>(at);
      at = (at - 1) / 2;
    }
    items_[at] = item;
    places[item.id] = static_cast<std::uint32_t>(at);
  }

  void sink(std::size_t at, Places& places) {
    const Item item = items_[at];
    for (std::size_t child = 2 * at + 1; child < items_.size(); child = 2 * at + 1) {
      if (child + 1 < items_.size() && before(items_[child + 1], items_[child])) ++child;
      if (!before(items_[child], item)) break;
      items_[at] = items_[child];
      places[items_[at].id] = static_cast<std::uint32_t>(at);
      at = child;
    }
    items_[at] = item;
    places[item.id] = static_cast<std::uint32_t>(at);
  }

  std::vector<Item> items_;
};

}  // namespace trainyard::engine
