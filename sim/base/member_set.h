// A set of members of an enum with at most 32 of them.
#pragma once

namespace trainyard {

template <class Member>
class MemberSet {
 public:
  void add(Member member) { bits_ = bits_ | bit(member); }
  bool has(Member member) const { return (bits_ & bit(member)) != 0; }
  bool empty() const { return bits_ == 0; }
  friend bool operator==(const MemberSet&, const MemberSet&) = default;

 private:
  static unsigned bit(Member member) { return 1U << static_cast<unsigned>(member); }
  unsigned bits_ = 0;
};

}  // namespace trainyard
