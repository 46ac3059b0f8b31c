#include "client/handles/holes.h"

#include <algorithm>
#include <map>

#include "common/bytes.h"

namespace starlane::client {
namespace {

/// begin -> end, never overlapping nor touching.
using Ranges = std::map<std::uint64_t, std::uint64_t>;

void cut(Ranges& ranges, std::uint64_t begin, std::uint64_t end) {
  auto at = ranges.lower_bound(begin);
  if (at != ranges.begin() && std::prev(at)->second > begin) --at;
  while (at != ranges.end() && at->first < end) {
    const auto [old_begin, old_end] = *at;
    at = ranges.erase(at);
    if (old_begin < begin) ranges.emplace(old_begin, begin);
    if (old_end > end) ranges.emplace(end, old_end);
  }
}

void fill(Ranges& ranges, std::uint64_t begin, std::uint64_t end) {
  cut(ranges, begin, end);
  auto at = ranges.emplace(begin, end).first;
  if (const auto next = std::next(at); next != ranges.end() && next->first == end) {
    at->second = next->second;
    ranges.erase(next);
  }
  if (at != ranges.begin() && std::prev(at)->second == begin) {
    std::prev(at)->second = at->second;
    ranges.erase(at);
  }
}

}  // namespace

std::vector<DataRange> data_of(const pb::Chunk& chunk) {
  Ranges ranges;
  for (const pb::SliceEntry& entry : chunk.entries()) {
    const std::uint64_t begin = entry.position();
    const std::uint64_t end = begin + entry.length();
    if (begin == end) continue;
    if (entry.kind() == pb::SliceEntry::ZERO)
      cut(ranges, begin, end);
    else
      fill(ranges, begin, end);
  }
  std::vector<DataRange> data;
  for (const auto& [begin, end] : ranges) data.push_back({begin, end});
  return data;
}

std::optional<std::uint64_t> HoleSearch::look(const pb::Chunk& chunk, std::uint64_t file_length) {
  const std::uint64_t start = chunk.index() * kChunkSize;
  for (const DataRange& range : data_of(chunk)) {
    const std::uint64_t begin = start + range.begin;
    const std::uint64_t end = std::min(start + range.end, file_length);
    if (end <= at_ || begin >= file_length) continue;
    if (what_ == For::data) return std::max(at_, begin);
    if (begin > at_) return at_;
    at_ = end;
  }
  return std::nullopt;
}

}  // namespace starlane::client
