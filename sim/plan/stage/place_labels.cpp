#include "sim/plan/stage/place_labels.h"

#include <charconv>
#include <system_error>

#include "sim/base/check.h"
#include "sim/plan/step_plan.h"

namespace trainyard::plan {
namespace {

constexpr char kBegin = '\x01', kEnd = '\x02';

}  // namespace

std::string place_sign(int place) {
  return kBegin + std::to_string(place) + kEnd;
}

int sign_at(const std::string& label, std::size_t& at) {
  if (label[at] != kBegin) return -1;
  const char* const end = label.data() + label.size();
  int place = -1;
  const auto [behind, error] = std::from_chars(label.data() + at + 1, end, place);
  if (error != std::errc() || behind == end || *behind != kEnd || place < 0) return -1;
  at = static_cast<std::size_t>(behind - label.data()) + 1;
  return place;
}

bool tells_of_place(const std::string& label) {
  return label.find(kBegin) != std::string::npos;
}

engine::Labels with_names(const engine::Labels& labels, const StepPlan& step,
                          std::span<const int> moved) {
  engine::Labels named;
  named.parts = labels.parts;
  named.what = labels.what;
  named.where.reserve(labels.where.size());
  for (const std::string& label : labels.where) {
    std::string& text = named.where.emplace_back();
    std::size_t from = 0;
    for (std::size_t at = label.find(kBegin); at != std::string::npos;
         at = label.find(kBegin, at)) {
      const std::size_t begin = at;
      const int place = sign_at(label, at);
      if (place < 0) {
        ++at;
        continue;
      }
      const int own = moved.empty() ? place : moved[static_cast<std::size_t>(place)];
      TRAINYARD_CHECK(own >= 0, "place {} is of another stage", place);
      text.append(label, from, begin - from).append(step.name_of(own));
      from = at;
    }
    text.append(label, from);
  }
  return named;
}

}  // namespace trainyard::plan
