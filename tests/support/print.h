// Lets doctest print the project's types when a check fails.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/engine/trace.h"

namespace doctest {

template <>
struct StringMaker<trainyard::Duration> {
  static String convert(trainyard::Duration value) {
    return fmt::format("{} ps", value.count()).c_str();
  }
};

template <class Tag, class Rep>
struct StringMaker<trainyard::Quantity<Tag, Rep>> {
  static String convert(trainyard::Quantity<Tag, Rep> value) {
    return fmt::format("{}", value.count()).c_str();
  }
};

template <>
struct StringMaker<trainyard::engine::ActorId> {
  static String convert(trainyard::engine::ActorId value) {
    return fmt::format("actor {}", trainyard::index(value)).c_str();
  }
};

template <>
struct StringMaker<trainyard::Rank> {
  static String convert(trainyard::Rank value) {
    return fmt::format("rank {}", trainyard::index(value)).c_str();
  }
};

template <>
struct StringMaker<trainyard::engine::Span> {
  static String convert(const trainyard::engine::Span& span) {
    return fmt::format("actor {} call {} op {}: issued {} begin {} active {} end {}",
                       trainyard::index(span.actor), span.call, span.op, span.issued.count(),
                       span.begin.count(), span.active.count(), span.end.count())
        .c_str();
  }
};

template <>
struct StringMaker<trainyard::engine::KernelSpan> {
  static String convert(const trainyard::engine::KernelSpan& span) {
    return fmt::format("actor {} call {} op {} kernel {}: {} to {}", trainyard::index(span.actor),
                       span.call, span.op, span.kernel, span.begin.count(), span.end.count())
        .c_str();
  }
};

}  // namespace doctest
