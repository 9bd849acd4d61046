#include "sim/plan/pass_steps.h"

#include <utility>

namespace trainyard::plan {

using models::NamedKernel;
using models::WorkItem;

namespace {

void write(ProgramBuilder& builder, const Work& work) {
  if (work.own.empty())
    builder.layer_work(work.of_layer, work.where, OpGroup::compute, work.part);
  else
    builder.work(work.own, work.where, OpGroup::compute, work.part);
}

void write(ProgramBuilder& builder, const Act& act) {
  if (const auto* hold = std::get_if<Hold>(&act))
    builder.hold(hold->kind, hold->bytes, hold->owner);
  else if (const auto* release = std::get_if<Release>(&act))
    builder.release(release->kind, release->bytes, release->owner);
  else if (const auto* work = std::get_if<Work>(&act))
    write(builder, *work);
  else if (const auto* between = std::get_if<Between>(&act))
    between->write();
}

// Acts whose work is cut before every collective and every wait, and after every wait.
std::vector<Act> cut(const std::vector<Act>& acts) {
  std::vector<Act> pieces;
  for (const Act& act : acts) {
    const auto* work = std::get_if<Work>(&act);
    if (work == nullptr) {
      pieces.push_back(act);
      continue;
    }
    Work piece{{}, work->where, work->part};
    const auto end_piece = [&] {
      if (!piece.own.empty()) pieces.emplace_back(piece);
      piece.own.clear();
    };
    for (const WorkItem& item : work->items()) {
      const bool is_kernel = std::holds_alternative<NamedKernel>(item);
      if (!is_kernel) end_piece();
      piece.own.push_back(item);
      if (!is_kernel) end_piece();
    }
    end_piece();
  }
  return pieces;
}

template <class Item>
bool begins_with(const Act& act, Hidden hidden) {
  const auto* work = std::get_if<Work>(&act);
  if (work == nullptr || work->items().empty()) return false;
  const auto* item = std::get_if<Item>(&work->items().front());
  return item != nullptr && (hidden == Hidden::all || item->group == models::LayerGroup::expert);
}

// One of two passes, and how far it has been written.
class Turn {
 public:
  Turn(ProgramBuilder& builder, const std::vector<Act>& acts, Hidden hidden)
      : builder_(builder), pieces_(cut(acts)), hidden_(hidden) {}

  bool done() const { return next_ == pieces_.size(); }
  bool at_wait() const {
    return !done() && begins_with<models::GroupWait>(pieces_[next_], hidden_);
  }
  void step() { write(builder_, pieces_[next_++]); }
  bool at_collective() const {
    return !done() && begins_with<models::GroupCollective>(pieces_[next_], hidden_);
  }

 private:
  ProgramBuilder& builder_;
  std::vector<Act> pieces_;
  Hidden hidden_;
  std::size_t next_ = 0;
};

}  // namespace

void write(ProgramBuilder& builder, const std::vector<Act>& acts) {
  for (const Act& act : acts)
    write(builder, act);
}

// A pass that comes to a wait hands over. The other's wait is written before a new collective is
// enqueued: a wait holds for all that its stream has taken in, and it is meant for the earlier one.
void write_overlapped(ProgramBuilder& builder, const std::vector<Act>& first,
                      const std::vector<Act>& second, Hidden hidden) {
  Turn one(builder, first, hidden), two(builder, second, hidden);
  Turn* turn = &one;
  Turn* other = &two;
  while (!one.done() || !two.done()) {
    if (turn->at_wait()) turn->step();
    while (!turn->done() && !turn->at_wait()) {
      if (turn->at_collective() && other->at_wait()) other->step();
      turn->step();
    }
    if (!other->done()) std::swap(turn, other);
  }
}

std::vector<WorkItem> input_half(const std::vector<WorkItem>& backward) {
  std::vector<WorkItem> items;
  for (const WorkItem& item : backward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel == nullptr || !kernel->weight_gradient) items.push_back(item);
  }
  return items;
}

std::vector<WorkItem> weight_half(const std::vector<WorkItem>& backward) {
  std::vector<WorkItem> items;
  for (const WorkItem& item : backward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel != nullptr && kernel->weight_gradient) items.push_back(item);
  }
  return items;
}

}  // namespace trainyard::plan
