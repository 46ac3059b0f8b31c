// A pass over a directory whose cookies are a counter of the handle: pages of names come from a
// source that continues after a name, and the handle remembers where each page began, so that a
// pass may resume anywhere without the directory ever being in memory. One pass at a time; the Turn
// is the caller's to take.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/handles/turn.h"
#include "client/vfs.h"
#include "client/views/views.h"
#include "common/ids.h"
#include "common/status.h"

namespace starlane::client {

struct ListedName {
  std::string name;
  InodeId inode;
  std::uint32_t type = 0;  // mode bits >> 12
  std::uint64_t ino = 0;   // st_ino
};

struct ListedPage {
  std::vector<ListedName> names;
  bool end = false;
};

class DirectoryPass {
 public:
  /// Names greater than `after`, in order; "" is before all.
  using Source = std::function<Result<ListedPage>(const std::string& after)>;

  /// Starts anew: names made since are seen.
  void rewind();
  /// The name with this number in the pass, counted from 0; null at the end. Good until the next
  /// call.
  Result<const ListedName*> at(std::uint64_t number, const Source& source);
  /// at(number) needs no call of the source.
  bool in_memory(std::uint64_t number) const;

  /// Hears of the pages in memory as they come and go: what a listing in progress needs to go on
  /// elsewhere.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void fetched(std::uint64_t first, const ListedPage& page) = 0;
    virtual void dropped(std::uint64_t first) = 0;
  };
  void observe(std::unique_ptr<Observer> observer) { observer_ = std::move(observer); }
  /// A page of a pass that an earlier daemon was in; in order.
  void restore(std::uint64_t first, ListedPage page);

 private:
  struct Page {
    std::uint64_t first = 0;
    ListedPage listed;
    std::uint64_t next() const { return first + listed.names.size(); }
  };
  const Page* holding(std::uint64_t number) const;
  Status fetch(std::uint64_t first, const std::string& after, const Source& source);
  void thin_marks();
  void drop_front();

  static constexpr std::size_t kPages =
      2;  // whole, so that a reader may resume inside what it was sent last
  static constexpr std::size_t kMarks = 16 * 1024;

  std::unique_ptr<Observer> observer_;
  std::deque<Page> pages_;                      // the latest last
  std::map<std::uint64_t, std::string> marks_;  // first number of a page, the name before it
};

struct DirectoryHandle {
  Node node;
  View* view = nullptr;  // null: the mount's own tree
  Turn turn;
  DirectoryPass pass;
};

}  // namespace starlane::client
