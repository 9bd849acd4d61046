// Values made of what is asked for, each once for all who ask.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace trainyard {

// Asked has ==. May be used from several threads at once.
template <class Asked, class Made>
class MadeOnce {
 public:
  // Some numbers of what is asked for, by which most of it differs.
  using Key = std::array<std::int64_t, 5>;

  // What `make` makes, unless that is there. Requires: equal ones have equal keys.
  template <class Make>
  std::shared_ptr<const Made> of(const Key& key, const Asked& asked, const Make& make) {
    {
      const std::scoped_lock lock(mutex_);
      if (auto known = find(key, asked)) return known;
    }
    auto made = std::make_shared<const Made>(make());
    const std::scoped_lock lock(mutex_);
    if (auto known = find(key, asked)) return known;
    known_[key].push_back({asked, made});
    return made;
  }

 private:
  struct Known {
    Asked asked;
    std::shared_ptr<const Made> made;
  };

  std::shared_ptr<const Made> find(const Key& key, const Asked& asked) const {
    const auto alike = known_.find(key);
    if (alike == known_.end()) return nullptr;
    for (const Known& known : alike->second)
      if (known.asked == asked) return known.made;
    return nullptr;
  }

  std::mutex mutex_;
  std::map<Key, std::vector<Known>> known_;
};

}  // namespace trainyard
