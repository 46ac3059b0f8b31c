// The files that this host has dirty data of, found by key; a file is forgotten when it is clean
// and nobody uses it. Any thread. Locks: a shard's mutex is taken before a file's, never the other
// way round.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/write/dirty_file.h"

namespace starlane::client {

class DirtyFiles {
 public:
  explicit DirtyFiles(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

  /// Keeps a file in the table while it is used.
  class Ref {
   public:
    Ref() = default;
    Ref(Ref&& other) noexcept : files_(other.files_), file_(std::move(other.file_)) {}
    Ref& operator=(Ref&& other) noexcept;
    ~Ref() { release(); }
    explicit operator bool() const { return file_ != nullptr; }
    DirtyFile& operator*() const { return *file_; }
    DirtyFile* operator->() const { return file_.get(); }

   private:
    friend class DirtyFiles;
    Ref(DirtyFiles* files, std::shared_ptr<DirtyFile> file)
        : files_(files), file_(std::move(file)) {}
    void release();
    DirtyFiles* files_ = nullptr;
    std::shared_ptr<DirtyFile> file_;
  };

  Ref find(FileKey key);
  Ref find_or_add(FileKey key);
  /// Those of one branch, or all (none). A copy: others may come meanwhile.
  std::vector<Ref> all(BranchId branch = {});

 private:
  static constexpr std::size_t kShards = 16;
  struct Entry {
    std::shared_ptr<DirtyFile> file;
    std::size_t users = 0;
  };
  struct Shard {
    Mutex m;
    std::unordered_map<FileKey, Entry> files SL_GUARDED_BY(m);
  };
  Shard& shard_of(FileKey key) { return shards_[std::hash<FileKey>()(key) % kShards]; }
  void release(DirtyFile& file);

  const std::shared_ptr<Arena> arena_;
  std::array<Shard, kShards> shards_;
};

}  // namespace starlane::client
