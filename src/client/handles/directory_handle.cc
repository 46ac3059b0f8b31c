#include "client/handles/directory_handle.h"

namespace starlane::client {

void DirectoryPass::rewind() {
  while (!pages_.empty()) drop_front();
  marks_.clear();
}

void DirectoryPass::drop_front() {
  if (observer_) observer_->dropped(pages_.front().first);
  pages_.pop_front();
}

/// A seek back to before it starts anew, and counts.
void DirectoryPass::restore(std::uint64_t first, ListedPage page) {
  marks_.emplace(0, "");
  pages_.push_back({first, std::move(page)});
}

const DirectoryPass::Page* DirectoryPass::holding(std::uint64_t number) const {
  for (const Page& page : pages_)
    if (number >= page.first &&
        (number < page.next() || (number == page.next() && page.listed.end)))
      return &page;
  return nullptr;
}

bool DirectoryPass::in_memory(std::uint64_t number) const { return holding(number) != nullptr; }

Result<const ListedName*> DirectoryPass::at(std::uint64_t number, const Source& source) {
  while (true) {
    if (const Page* page = holding(number)) {
      const std::uint64_t index = number - page->first;
      return index < page->listed.names.size() ? &page->listed.names[index] : nullptr;
    }
    if (pages_.empty()) {
      SL_TRY(fetch(0, "", source));
      continue;
    }
    const Page& last = pages_.back();
    if (number >= last.next()) {
      if (last.listed.end || last.listed.names.empty()) return nullptr;  // beyond the end
      const std::string after = last.listed.names.back().name;
      SL_TRY(fetch(last.next(), after, source));
      continue;
    }
    // Back to before the pages in memory: a seekdir.
    auto mark = marks_.upper_bound(number);
    if (mark == marks_.begin()) return nullptr;
    --mark;
    const auto [first, after] = *mark;
    while (!pages_.empty()) drop_front();
    SL_TRY(fetch(first, after, source));
  }
}

Status DirectoryPass::fetch(std::uint64_t first, const std::string& after, const Source& source) {
  ListedPage listed = SL_TRY(source(after));
  if (listed.names.empty()) listed.end = true;
  marks_.emplace(first, after);
  if (marks_.size() > kMarks) thin_marks();
  pages_.push_back({first, std::move(listed)});
  if (observer_) observer_->fetched(first, pages_.back().listed);
  if (pages_.size() > kPages) drop_front();
  return {};
}

void DirectoryPass::thin_marks() {
  bool keep = true;
  for (auto at = marks_.begin(); at != marks_.end(); keep = !keep)
    at = keep ? std::next(at) : marks_.erase(at);
}

}  // namespace starlane::client
