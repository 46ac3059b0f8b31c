#include "meta/chunk.h"

#include <algorithm>
#include <map>

namespace starlane::meta {
namespace {

/// The parts of a chunk that newer entries already show, as disjoint ranges that do not touch.
class Shown {
 public:
  /// Adds [first, last) and appends to `pieces` what was not shown before.
  void show(std::uint32_t first, std::uint32_t last, std::size_t entry,
            std::vector<Piece>* pieces) {
    auto at = ranges_.upper_bound(first);
    if (at != ranges_.begin() && std::prev(at)->second >= first) --at;
    std::uint32_t begin = first;
    std::uint32_t end = last;
    std::uint32_t next = first;
    while (at != ranges_.end() && at->first <= last) {
      if (at->first > next) pieces->push_back({next, at->first - next, entry});
      next = std::max(next, at->second);
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    if (next < last) pieces->push_back({next, last - next, entry});
    ranges_.emplace(begin, end);
  }

 private:
  std::map<std::uint32_t, std::uint32_t> ranges_;
};

bool overlap(const Entry& a, const Entry& b) {
  return a.position < b.end() && b.position < a.end();
}

}  // namespace

std::vector<Piece> visible_pieces(const std::vector<Entry>& entries) {
  std::vector<Piece> pieces;
  if (entries.size() == 1) return {{entries[0].position, entries[0].length, 0}};
  Shown shown;
  for (std::size_t i = entries.size(); i-- > 0;) {
    shown.show(entries[i].position, entries[i].end(), i, &pieces);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.position < b.position; });
  return pieces;
}

std::vector<SliceUse> slice_uses(const std::vector<Entry>& entries) {
  std::map<SliceId, SliceUse> uses;
  for (const Entry& entry : entries) {
    const bool own = entry.kind == SliceKind::data && (entry.flags & kPinned) == 0;
    if (own) uses[entry.slice] = {entry.slice, entry.slice_length, 0};
  }
  for (const Piece& piece : visible_pieces(entries)) {
    const auto use = uses.find(entries[piece.entry].slice);
    if (entries[piece.entry].kind != SliceKind::data || use == uses.end()) continue;
    use->second.shown = std::min(use->second.held, use->second.shown + piece.length);
  }
  std::vector<SliceUse> all;
  all.reserve(uses.size());
  for (const auto& [slice, use] : uses) all.push_back(use);
  return all;
}

std::uint64_t unseen_bytes(const std::vector<SliceUse>& uses) {
  std::uint64_t bytes = 0;
  for (const SliceUse& use : uses) bytes += use.unseen();
  return bytes;
}

bool is_wasteful(const std::vector<SliceUse>& uses) {
  std::uint64_t shown = 0;
  for (const SliceUse& use : uses) shown += use.shown;
  return unseen_bytes(uses) >= std::max(kBlockSize, shown);
}

void Chunk::add(const Entry& entry, std::string_view inline_content) {
  row_.entries.push_back(entry);
  if (entry.kind != SliceKind::inline_bytes) return;
  for (const SlicesRow::Inline& one : row_.inlines) {
    if (one.slice == entry.slice) return;
  }
  row_.inlines.push_back({entry.slice, std::string(inline_content)});
}

void Chunk::zero(std::uint32_t first, std::uint32_t last) {
  if (first >= last || empty()) return;
  Entry entry;
  entry.position = first;
  entry.length = last - first;
  entry.kind = SliceKind::zero;
  row_.entries.push_back(entry);
}

void Chunk::cut(std::uint32_t length) {
  std::erase_if(row_.entries, [length](const Entry& entry) { return entry.position >= length; });
  for (Entry& entry : row_.entries) entry.length = std::min(entry.length, length - entry.position);
  drop_unused_inlines();
}

void Chunk::tidy(SliceId fresh) {
  std::vector<bool> shows(row_.entries.size());
  for (const Piece& piece : visible_pieces(row_.entries)) shows[piece.entry] = true;
  std::vector<Entry> kept;
  kept.reserve(row_.entries.size());
  for (std::size_t i = 0; i < row_.entries.size(); ++i) {
    const Entry& entry = row_.entries[i];
    if (!shows[i]) continue;
    const auto under = [&entry](const Entry& older) { return overlap(entry, older); };
    if (entry.kind == SliceKind::zero && std::none_of(kept.begin(), kept.end(), under)) continue;
    kept.push_back(entry);
  }
  row_.entries = std::move(kept);
  drop_unused_inlines();
  if (fresh) merge_inlines(fresh);
}

std::uint64_t Chunk::covered() const {
  std::uint64_t bytes = 0;
  for (const Piece& piece : visible_pieces(row_.entries)) {
    if (row_.entries[piece.entry].kind != SliceKind::zero) bytes += piece.length;
  }
  return bytes;
}

std::size_t Chunk::inline_size() const {
  std::size_t size = 0;
  for (const SlicesRow::Inline& one : row_.inlines) size += one.bytes.size();
  return size;
}

void Chunk::drop_unused_inlines() {
  std::erase_if(row_.inlines, [this](const SlicesRow::Inline& one) {
    return std::none_of(row_.entries.begin(), row_.entries.end(), [&one](const Entry& entry) {
      return entry.kind == SliceKind::inline_bytes && entry.slice == one.slice;
    });
  });
}

void Chunk::merge_inlines(SliceId fresh) {
  if (row_.entries.size() < 2) return;
  std::uint32_t end = 0;
  for (const Entry& entry : row_.entries) {
    if (entry.kind != SliceKind::inline_bytes) return;
    end = std::max(end, entry.end());
  }
  if (end > kInlineLimit || covered() != end) return;
  std::string content(end, '\0');
  for (const Entry& entry : row_.entries) {
    content.replace(entry.position, entry.length, row_.inline_of(entry.slice), entry.offset,
                    entry.length);
  }
  Entry whole = row_.entries.back();
  whole.position = whole.offset = 0;
  whole.length = whole.slice_length = end;
  whole.slice = fresh;
  row_.entries = {whole};
  row_.inlines = {{fresh, std::move(content)}};
}

}  // namespace starlane::meta
