// A value with a default that knows whether somebody chose it: an option of a scenario, whose
// default stands with it, and which means nothing, or something else, where nobody asked for it.
#pragma once

#include <fmt/format.h>

namespace trainyard {

// Stands for a default until it is known: what an option is where nobody said it depends on others,
// or it must be said.
template <class T>
struct Depends {
  T stand_in;
};
template <class T>
constexpr Depends<T> depends(const T& stand_in) {
  return {stand_in};
}

template <class T>
class Option {
 public:
  constexpr Option() = default;
  constexpr Option(const T& otherwise) : value_(otherwise) {}
  constexpr Option(const Depends<T>& otherwise) : value_(otherwise.stand_in), is_fixed_(false) {}

  constexpr Option& operator=(const T& chosen) {
    value_ = chosen;
    is_said_ = true;
    return *this;
  }
  // A default that depends on others; changes nothing that was said.
  constexpr void otherwise(const T& value) {
    if (!is_said_) value_ = value;
  }

  constexpr bool is_said() const { return is_said_; }
  // Where nobody said it, it is always the same.
  constexpr bool is_fixed() const { return is_fixed_; }
  constexpr const T& value() const { return value_; }
  constexpr operator const T&() const { return value_; }

 private:
  T value_{};
  bool is_said_ = false;
  bool is_fixed_ = true;
};

}  // namespace trainyard

// Prints as its value does.
template <class T>
struct fmt::formatter<trainyard::Option<T>> : fmt::formatter<T> {
  template <class Context>
  auto format(const trainyard::Option<T>& option, Context& context) const {
    return fmt::formatter<T>::format(option.value(), context);
  }
};
