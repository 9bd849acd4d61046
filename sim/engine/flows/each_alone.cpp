#include "sim/engine/flows/rate_groups.h"

namespace trainyard::engine {
namespace {

class EachAlone final : public RateGroups {
 public:
  EachAlone(const IdVector<LinkId, std::int64_t>& capacity, const Sharing& sharing)
      : capacity_(capacity), sharing_(sharing) {}

  void add(std::uint32_t flow, const Path& path, std::int64_t limit) override {
    if (flow >= place_.size()) {
      place_.resize(flow + 1);
      rate_.resize(flow + 1);
    }
    place_[flow] = static_cast<std::uint32_t>(flows_.size());
    rate_[flow] = 0;
    flows_.push_back({path, limit});
    owner_.push_back(flow);
  }

  void remove(std::uint32_t flow) override {
    const std::uint32_t place = place_[flow];
    flows_[place] = flows_.back();
    owner_[place] = owner_.back();
    place_[owner_[place]] = place;
    flows_.pop_back();
    owner_.pop_back();
  }

  void divide() override {
    moved_.clear();
    changed_.clear();
    if (flows_.empty()) return;
    sharing_.rates(capacity_, flows_, rates_);
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      std::int64_t& rate = rate_[owner_[i]];
      if (rate == rates_[i]) continue;
      if (rate == 0) moved_.push_back({owner_[i], owner_[i]});
      changed_.push_back(owner_[i]);
      rate = rates_[i];
    }
  }

  std::int64_t rate(std::uint32_t group) const override { return rate_[group]; }
  std::size_t groups() const override { return rate_.size(); }

 private:
  const IdVector<LinkId, std::int64_t>& capacity_;
  const Sharing& sharing_;
  std::vector<Flow> flows_;           // dense
  std::vector<std::uint32_t> owner_;  // parallel: the flow
  std::vector<std::uint32_t> place_;  // by flow, in flows_
  std::vector<std::int64_t> rate_;    // by flow; 0: new
  std::vector<std::int64_t> rates_;
};

}  // namespace

std::unique_ptr<RateGroups> each_alone(const IdVector<LinkId, std::int64_t>& capacity,
                                       const Sharing& sharing) {
  return std::make_unique<EachAlone>(capacity, sharing);
}

}  // namespace trainyard::engine
