#include "sim/plan/replicas/leader/loss_place.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "sim/base/check.h"

namespace trainyard::plan {

using models::LayerWork;
using models::MemoryBound;
using models::MemoryOp;
using models::NamedKernel;
using models::NetworkWork;
using models::WorkItem;

namespace {

const MemoryBound* moved_by(const WorkItem& item) {
  const auto* named = std::get_if<NamedKernel>(&item);
  return named == nullptr ? nullptr : std::get_if<MemoryBound>(&named->kernel);
}

bool is_of_loss(const WorkItem& item) {
  const MemoryBound* moved = moved_by(item);
  return moved != nullptr && moved->op == MemoryOp::cross_entropy;
}

const LayerWork& last_of(const NetworkWork& work) {
  return work.kinds[static_cast<std::size_t>(work.chain.back())];
}

using Items = std::vector<WorkItem>;

Items::const_iterator first_of_loss(const Items& forward) {
  return std::find_if(forward.begin(), forward.end(), is_of_loss);
}

// Behind the last of its kernels; what stands before them is the loss's too.
Items::const_iterator end_of_loss(const Items& backward) {
  return std::find_if(backward.rbegin(), backward.rend(), is_of_loss).base();
}

// Over so many micro-batches at once, launched by nobody else.
Items over(Items items, int batches) {
  for (WorkItem& item : items) {
    auto& named = std::get<NamedKernel>(item);
    auto& moved = std::get<MemoryBound>(named.kernel);
    moved.read = batches * moved.read;
    moved.written = batches * moved.written;
    moved.elements *= batches;
    named.launches = 1;
  }
  return items;
}

void add_place(NetworkWork& work, LayerWork place) {
  if (!work.plain.empty()) work.plain.push_back(static_cast<int>(work.kinds.size()));
  work.chain.push_back(static_cast<int>(work.kinds.size()));
  work.divisible.push_back(false);
  work.kinds.push_back(std::move(place));
}

void slow(Items& items, double factor, bool only_repeated) {
  double before = 0;
  for (WorkItem& item : items) {
    auto* named = std::get_if<NamedKernel>(&item);
    if (named == nullptr || (only_repeated && !named->repeated)) continue;
    const double after = before + factor * named->launches;
    named->launches = static_cast<std::uint32_t>(std::llround(after) - std::llround(before));
    before = after;
  }
}

}  // namespace

std::optional<std::string> loss_stays(const NetworkWork& work) {
  for (std::size_t place = 0; place + 1 < work.chain.size(); ++place) {
    const LayerWork& layer = work.kinds[static_cast<std::size_t>(work.chain[place])];
    if (std::any_of(layer.forward.begin(), layer.forward.end(), is_of_loss))
      return layer.name + " has a loss, before the last layer's";
  }
  const LayerWork& last = last_of(work);
  const auto first = first_of_loss(last.forward);
  if (first == last.forward.end())
    return last.name + " has no kernel of a loss that could stand alone";
  const bool ends = std::all_of(first, last.forward.end(), is_of_loss);
  const auto end = end_of_loss(last.backward);
  const bool begins = std::all_of(last.backward.begin(), end,
                                  [](const WorkItem& item) { return moved_by(item) != nullptr; });
  if (!ends || !begins || end == last.backward.begin())
    return last.name + " has more than one loss, and products between them";
  return std::nullopt;
}

Bytes loss_input(const NetworkWork& work) {
  TRAINYARD_CHECK(!loss_stays(work), "{}", *loss_stays(work));
  return moved_by(*(end_of_loss(last_of(work).backward) - 1))->written;
}

NetworkWork with_loss_apart(const NetworkWork& work, int batches) {
  TRAINYARD_CHECK(!loss_stays(work), "{}", *loss_stays(work));
  NetworkWork seen = work;
  LayerWork model = last_of(work), loss;
  const auto from = first_of_loss(model.forward), to = end_of_loss(model.backward);
  loss.name = "loss";
  if (batches > 0) {
    loss.forward = over({from, model.forward.cend()}, batches);
    loss.backward = over({model.backward.cbegin(), to}, batches);
    // The gathered outputs, unless the loss keeps something in their place.
    const Bytes kept = model.logits > Bytes(0) ? model.logits : loss_input(work);
    loss.logits = batches * kept;
    loss.transient = batches * model.transient;
  }
  model.forward.erase(from, model.forward.cend());
  model.backward.erase(model.backward.cbegin(), to);
  model.logits = Bytes(0);
  // Of what the loss needs beside its input a rank has the gradient that it is handed, and what its
  // first kernel makes of that.
  Bytes handed = loss_input(work);
  if (!model.backward.empty())
    if (const MemoryBound* first = moved_by(model.backward.front()))
      handed = handed + first->written;
  model.transient = std::min(model.transient, handed);
  model.output = loss_input(work);
  seen.chain.back() = static_cast<int>(seen.kinds.size());
  if (!seen.plain.empty()) seen.plain.push_back(static_cast<int>(seen.kinds.size()));
  seen.kinds.push_back(std::move(model));
  add_place(seen, std::move(loss));
  return seen;
}

NetworkWork with_loss_within(const NetworkWork& work) {
  NetworkWork seen = work;
  LayerWork loss;
  loss.name = "loss";
  add_place(seen, std::move(loss));
  return seen;
}

void slow_launches(NetworkWork& work, double factor) {
  for (LayerWork& kind : work.kinds) {
    slow(kind.forward, factor, false);
    slow(kind.recompute, factor, false);
    slow(kind.backward, factor, true);
  }
}

}  // namespace trainyard::plan
