// A change of a file's contents inside one transaction: loads chunks, lets them be changed, and
// writes them back with all that follows from it: dead references (T), references beyond the first
// (K), pins of images (P), exact byte counts.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "meta/chunk.h"
#include "meta/context.h"

namespace starlane::meta {

class Contents {
 public:
  /// `version`: the file's before the change, which names the death of references.
  Contents(Change& change, InodeId inode, std::uint64_t version)
      : change_(change), inode_(inode), version_(version) {}

  /// Takes the row of a chunk as `change.t` read it (none: an empty chunk). The commit will expect
  /// it unchanged.
  Status load(std::uint32_t index, const std::optional<kv::Row>& row);
  Status load(const kv::Row& row);
  bool loaded(std::uint32_t index) const { return chunks_.contains(index); }
  /// A loaded chunk, to be changed.
  Chunk& chunk(std::uint32_t index);

  /// A slice that this change brings in from a reservation: its first reference is not counted; if
  /// nothing of it shows in the end, it is dead at once.
  void reserved(std::uint32_t index, const Entry& entry) {
    fresh_.emplace(entry.slice, Fresh{index, entry});
  }

  /// Tidies and writes every loaded chunk. Errors: busy (a list is too long: it waits for a merge),
  /// too_big.
  Result<std::int64_t> store();

 private:
  struct Loaded {
    Chunk chunk;
    std::vector<Entry> before;
    std::uint64_t covered = 0;
    kv::Version version = kv::kAbsent;
  };
  struct Fresh {
    std::uint32_t index = 0;
    Entry entry;
    bool taken = false;  // by its first reference
  };
  Status store_one(std::uint32_t index, Loaded& loaded, std::int64_t* bytes);
  void write_row(std::uint32_t index, const Loaded& loaded);
  bool grew_wasteful(const Loaded& loaded) const;
  void settle_references(std::uint32_t index, const Loaded& loaded);
  void born(const Entry& entry);

  Change& change_;
  const InodeId inode_;
  const std::uint64_t version_;
  std::map<std::uint32_t, Loaded> chunks_;
  std::map<SliceId, Fresh> fresh_;
};

/// The row of a dead reference, and the bytes that are held for it.
void put_dead(Change& change, InodeId inode, std::uint32_t chunk, std::uint64_t version,
              const Entry& entry);

/// A chunk goes with its file: its row, its references, its mark.
Status bury_chunk(Change& change, InodeId inode, std::uint64_t version, const kv::Row& row);

/// One entry for each slice that the list refers to (data only).
std::vector<Entry> references_of(const std::vector<Entry>& entries);

}  // namespace starlane::meta
