#include "tests/fuzz/shrink.h"

#include <chrono>
#include <vector>

namespace trainyard::fuzz {

using json::Value;

namespace {

constexpr int kMostTries = 400;
constexpr std::chrono::seconds kMostTime{120};

// Pointers to all members and items, outer ones first.
void collect(const Value& value, const std::string& at, std::vector<std::string>& pointers) {
  for (const json::Member& member : value.members)
    pointers.push_back(at + "/" + json::escape_pointer(member.key));
  for (std::size_t i = 0; i < value.items.size(); ++i)
    pointers.push_back(at + "/" + std::to_string(i));
  for (const json::Member& member : value.members)
    collect(member.value, at + "/" + json::escape_pointer(member.key), pointers);
  for (std::size_t i = 0; i < value.items.size(); ++i)
    collect(value.items[i], at + "/" + std::to_string(i), pointers);
}

Value* find(Value& root, const std::vector<std::string>& path, std::size_t depth) {
  Value* value = &root;
  for (std::size_t i = 0; i < depth; ++i) {
    if (value->is(json::Kind::array)) {
      const auto index = static_cast<std::size_t>(std::stoul(path[i]));
      if (index >= value->items.size()) return nullptr;
      value = &value->items[index];
    } else {
      value = value->find(path[i]);
      if (value == nullptr) return nullptr;
    }
  }
  return value;
}

bool erase(Value& root, const std::string& pointer) {
  const std::vector<std::string> path = json::split_pointer(pointer);
  Value* parent = find(root, path, path.size() - 1);
  if (parent == nullptr) return false;
  if (parent->is(json::Kind::object)) {
    if (parent->find(path.back()) == nullptr) return false;
    parent->erase(path.back());
    return true;
  }
  const auto index = static_cast<std::size_t>(std::stoul(path.back()));
  if (!parent->is(json::Kind::array) || index >= parent->items.size()) return false;
  parent->items.erase(parent->items.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

}  // namespace

Plan shrunk(const Plan& plan, const std::string& invariant) {
  Plan least = plan;
  const auto until = std::chrono::steady_clock::now() + kMostTime;
  int tries = 0;
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<std::string> pointers;
    collect(least.scenario, "", pointers);
    for (const std::string& pointer : pointers) {
      if (++tries > kMostTries || std::chrono::steady_clock::now() > until) return least;
      Plan candidate = least;
      if (!erase(candidate.scenario, pointer)) continue;
      if (finding_in(candidate).invariant != invariant) continue;
      least = std::move(candidate);
      smaller = true;
    }
  }
  return least;
}

}  // namespace trainyard::fuzz
