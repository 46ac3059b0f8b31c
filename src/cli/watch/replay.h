// Runs the operations of an access log again in another directory: the same reads, writes and
// changes of names, one after the other, and compares outcomes and times. Contents are not in a
// log: what is written is a pattern. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/access_entry.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::cli {

/// Reads a log. corrupt: which line is wrong.
Result<std::vector<client::AccessEntry>> read_access_log(const std::string& file);

class Replay {
 public:
  /// into: an empty directory, or none yet.
  explicit Replay(std::filesystem::path into) : into_(std::move(into)) {}

  /// Makes what the operations find there: directories, and files as long as what is read of them.
  Status prepare(const std::vector<client::AccessEntry>& log);
  /// Takes part in the comparison; never fails as a whole.
  void run(const std::vector<client::AccessEntry>& log);

  struct Line {
    std::uint64_t count = 0;
    std::uint64_t differ = 0;  // in their outcome: done then and not now, or the other way
    Nanoseconds logged{0}, replayed{0};
    std::uint64_t bytes = 0;
  };
  const std::map<std::string, Line>& lines() const { return lines_; }
  /// Operations that a log cannot bring back: of the kernel's own, or on files without a known
  /// name.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Outcome {
    bool done = false;
    std::uint64_t bytes = 0;
  };
  using Do = Outcome (Replay::*)(const client::AccessEntry&);

  static const std::map<std::string, Do>& table();
  std::string at(const std::string& path) const { return (into_ / path).string(); }
  int open_for(const std::string& path, bool writing);

  Outcome look(const client::AccessEntry& entry);
  Outcome open(const client::AccessEntry& entry);
  Outcome create(const client::AccessEntry& entry);
  Outcome close(const client::AccessEntry& entry);
  Outcome read(const client::AccessEntry& entry);
  Outcome write(const client::AccessEntry& entry);
  Outcome sync(const client::AccessEntry& entry);
  Outcome truncate(const client::AccessEntry& entry);
  Outcome allocate(const client::AccessEntry& entry);
  Outcome copy(const client::AccessEntry& entry);
  Outcome list(const client::AccessEntry& entry);
  Outcome read_link(const client::AccessEntry& entry);
  Outcome make_directory(const client::AccessEntry& entry);
  Outcome make_node(const client::AccessEntry& entry);
  Outcome make_symlink(const client::AccessEntry& entry);
  Outcome link(const client::AccessEntry& entry);
  Outcome unlink(const client::AccessEntry& entry);
  Outcome remove_directory(const client::AccessEntry& entry);
  Outcome rename(const client::AccessEntry& entry);
  Outcome change_mode(const client::AccessEntry& entry);
  Outcome touch(const client::AccessEntry& entry);
  Outcome space(const client::AccessEntry& entry);
  Outcome set_attribute(const client::AccessEntry& entry);
  Outcome get_attribute(const client::AccessEntry& entry);

  const std::filesystem::path into_;
  std::map<std::string, std::deque<UniqueFd>> opened_;  // by path, as the log opened them
  std::vector<char> buffer_;
  std::map<std::string, Line> lines_;
  std::uint64_t left_out_ = 0;
};

}  // namespace starlane::cli
