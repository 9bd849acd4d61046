// A vector that its copies share until one of them is changed: programs of ranks that run the same
// script differ in little else than names. Copies that are changed are of one thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace trainyard::engine {

template <class T>
class SharedTable {
 public:
  SharedTable() = default;
  SharedTable(std::vector<T> rows)  // NOLINT(google-explicit-constructor)
      : rows_(std::make_shared<std::vector<T>>(std::move(rows))) {}
  SharedTable(std::initializer_list<T> rows) : SharedTable(std::vector<T>(rows)) {}

  const std::vector<T>& rows() const { return rows_ ? *rows_ : none(); }
  // Its own, which no copy sees changed. No copy may be made while the reference is used.
  std::vector<T>& edit() {
    if (!rows_)
      rows_ = std::make_shared<std::vector<T>>();
    else if (rows_.use_count() > 1)
      rows_ = std::make_shared<std::vector<T>>(*rows_);
    return *rows_;
  }

  const T& operator[](std::size_t at) const { return rows()[at]; }
  const T& front() const { return rows().front(); }
  const T& back() const { return rows().back(); }
  const T* data() const { return rows().data(); }
  std::size_t size() const { return rows().size(); }
  bool empty() const { return rows().empty(); }
  auto begin() const { return rows().begin(); }
  auto end() const { return rows().end(); }

  friend bool operator==(const SharedTable& a, const SharedTable& b) {
    return a.rows_ == b.rows_ || a.rows() == b.rows();
  }

 private:
  static const std::vector<T>& none() {
    static const std::vector<T> kNone;
    return kNone;
  }

  std::shared_ptr<std::vector<T>> rows_;
};

}  // namespace trainyard::engine
