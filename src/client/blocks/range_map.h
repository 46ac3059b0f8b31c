// Disjoint ranges of a file with a value each, where what is assigned later shadows what was there:
// slice entries of a chunk, and extents that are not committed. One thread at a time.
#pragma once
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace starlane::client {

/// Value: copyable, and `skip(n)` makes it the value of a range that begins n bytes later.
template <typename Value>
class RangeMap {
 public:
  struct Tail {
    std::uint64_t end;
    Value value;
  };
  using Ranges = std::map<std::uint64_t, Tail>;  // by first byte

  void assign(std::uint64_t begin, std::uint64_t end, Value value) {
    if (begin == end) return;
    erase(begin, end);
    ranges_.emplace(begin, Tail{end, std::move(value)});
    bytes_ += end - begin;
  }
  /// A range, as `ending_at` found it, reaches to `end`; nothing lies there.
  void extend(Tail& range, std::uint64_t end) {
    bytes_ += end - range.end;
    range.end = end;
  }
  void erase(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    split(begin);
    split(end);
    const auto last = ranges_.lower_bound(end);
    for (auto at = ranges_.lower_bound(begin); at != last;) at = remove(at);
  }
  /// Removes what lies in [begin, end) and satisfies `which(begin, end, value)`.
  template <typename Which>
  void erase_if(std::uint64_t begin, std::uint64_t end, Which which) {
    split(begin);
    split(end);
    for (auto at = ranges_.lower_bound(begin); at != ranges_.end() && at->first < end;) {
      at = which(at->first, at->second.end, at->second.value) ? remove(at) : std::next(at);
    }
  }
  /// Calls visit(begin, end, value) for every part of a range that lies in [begin, end), in order.
  template <typename Visit>
  void visit(std::uint64_t begin, std::uint64_t end, Visit visit) const {
    for (auto at = first_over(begin); at != ranges_.end() && at->first < end; ++at) {
      Value value = at->second.value;
      const std::uint64_t from = at->first < begin ? begin : at->first;
      value.skip(from - at->first);
      visit(from, at->second.end < end ? at->second.end : end, value);
    }
  }
  /// Whether any range has a byte in [begin, end).
  bool touches(std::uint64_t begin, std::uint64_t end) const {
    const auto at = first_over(begin);
    return begin < end && at != ranges_.end() && at->first < end;
  }
  /// The range that ends at `end`, or null.
  std::pair<const std::uint64_t, Tail>* ending_at(std::uint64_t end) {
    auto at = ranges_.lower_bound(end);
    if (at == ranges_.begin()) return nullptr;
    --at;
    return at->second.end == end ? &*at : nullptr;
  }
  /// Cuts at `position`, so that no range lies on both sides.
  void split(std::uint64_t position) {
    auto at = ranges_.upper_bound(position);
    if (at == ranges_.begin()) return;
    --at;
    if (at->first == position || at->second.end <= position) return;
    Tail rest = at->second;
    rest.value.skip(position - at->first);
    at->second.end = position;
    ranges_.emplace_hint(std::next(at), position, std::move(rest));
  }

  bool empty() const { return ranges_.empty(); }
  /// Of all ranges together.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t end() const { return ranges_.empty() ? 0 : ranges_.rbegin()->second.end; }
  const Ranges& ranges() const { return ranges_; }

 private:
  /// The first range that ends after `position`.
  typename Ranges::const_iterator first_over(std::uint64_t position) const {
    auto at = ranges_.upper_bound(position);
    if (at != ranges_.begin() && std::prev(at)->second.end > position) --at;
    return at;
  }
  typename Ranges::iterator remove(typename Ranges::iterator at) {
    bytes_ -= at->second.end - at->first;
    return ranges_.erase(at);
  }

  Ranges ranges_;
  std::uint64_t bytes_ = 0;
};

}  // namespace starlane::client
