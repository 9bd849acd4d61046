#include "sim/schedule/custom_schedule.h"

#include <fmt/format.h>

#include <charconv>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::schedule {
namespace {

std::optional<Pass> pass_of(char word) {
  for (const Pass pass :
       {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight})
    if (letter(pass) == word) return pass;
  return std::nullopt;
}

// One word without '+'.
std::optional<Slot> parse_slot(std::string_view word, const PipelineShape& shape) {
  if (word.empty()) return std::nullopt;
  Slot slot;
  const std::optional<Pass> pass = pass_of(word.front());
  if (!pass) return std::nullopt;
  slot.pass = *pass;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + 1, end, slot.microbatch);
  if (error != std::errc() || slot.microbatch < 0 || word[1] == '-') return std::nullopt;
  int at = 0;
  if (rest != end) {
    if (rest + 1 != end || *rest < 'a' || *rest > 'z') return std::nullopt;
    at = *rest - 'a';
  } else if (parts(shape) > 1) {
    return std::nullopt;
  }
  if (at >= parts(shape)) return std::nullopt;
  slot.chunk = at % shape.chunks;
  slot.direction = static_cast<std::uint8_t>(at / shape.chunks);
  return slot;
}

std::string expected(const PipelineShape& shape) {
  if (parts(shape) == 1) return "a pass F, B, I or W and a micro-batch, as F0";
  return fmt::format("a pass F, B, I or W, a micro-batch and a {} from a to {}, as F0a",
                     shape.placement == Placement::bidirectional ? "copy" : "chunk",
                     static_cast<char>('a' + parts(shape) - 1));
}

}  // namespace

std::vector<Slot> parse_slots(std::string_view words, const PipelineShape& shape,
                              std::optional<std::string>& problem) {
  std::vector<Slot> slots;
  std::size_t at = 0;
  while (at < words.size() && !problem) {
    if (words[at] == ' ') {
      ++at;
      continue;
    }
    const std::size_t end = std::min(words.find_first_of(" +", at), words.size());
    const std::string_view word = words.substr(at, end - at);
    if (const auto slot = parse_slot(word, shape))
      slots.push_back(*slot);
    else
      problem = fmt::format("\"{}\" is no slot; expected {}", escape_control(std::string(word)),
                            expected(shape));
    at = end;
    if (at == words.size() || words[at] != '+' || problem) continue;
    slots.back().paired = true;
    ++at;
    if (at == words.size() || words[at] == ' ') problem = "nothing follows the last +";
  }
  return slots;
}

std::string slot_text(const Slot& slot, const PipelineShape& shape) {
  std::string text = fmt::format("{}{}", letter(slot.pass), slot.microbatch);
  if (parts(shape) > 1) text += static_cast<char>('a' + part(shape, slot));
  return text;
}

std::string slots_text(const std::vector<Slot>& slots, const PipelineShape& shape) {
  std::string text;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i > 0) text += slots[i - 1].paired ? '+' : ' ';
    text += slot_text(slots[i], shape);
  }
  return text;
}

StageOrders custom_orders(const CustomSchedule& custom, const PipelineShape& shape) {
  StageOrders orders;
  for (const std::string& words : custom.slots) {
    std::optional<std::string> problem;
    orders.push_back(parse_slots(words, shape, problem));
    TRAINYARD_CHECK(!problem, "{}", *problem);
  }
  return orders;
}

}  // namespace trainyard::schedule
