// Where copies of large files lie: a tmpfs with huge pages that is mounted nowhere and vanishes
// with the process, and a read-only view of it, through which the kernel gets the files so that
// nobody can write into them. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/bytes.h"
#include "common/landing.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::client {

/// One copy. Its bytes are freed with the last owner, the kernel's opens included.
class CacheFile {
 public:
  /// A name in a directory, which goes with the file; where nobody is to go on with it: none.
  struct Name {
    std::shared_ptr<const UniqueFd> directory;
    std::uint64_t number = 0;
  };
  CacheFile(UniqueFd writable, UniqueFd read_only, std::byte* map, std::uint64_t length, Name name);
  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  /// For the kernel; opened through the read-only view.
  int backing_fd() const { return read_only_.get(); }
  /// As long as at creation, whatever happens to the file later.
  MutableByteSpan map() const { return {map_, mapped_}; }
  /// Where a part of it is to be read to.
  Landing landing(std::uint64_t offset, std::uint64_t length) {
    return {map().subspan(offset, length), writable_.get(), offset};
  }
  std::uint64_t length() const { return length_.load(std::memory_order_relaxed); }
  /// 0: it has no name.
  std::uint64_t name() const { return name_.number; }
  /// Sees to it that pages of the map are there, in a file that another process filled: what is
  /// written to the kernel from pages that are not fails when this process is killed meanwhile.
  void populate(std::uint64_t offset, std::uint64_t length) const;

  /// All of it, or no_space.
  Status write(std::uint64_t offset, ByteSpan bytes);
  Status truncate(std::uint64_t length);
  /// Zeros a range, as far as the file reaches.
  Status zero(std::uint64_t offset, std::uint64_t length);

 private:
  const UniqueFd writable_;
  const UniqueFd read_only_;
  std::byte* const map_;
  const std::uint64_t mapped_;
  const Name name_;
  std::atomic<std::uint64_t> length_;  // a figure; the callers order changes
};

class CacheMount {
 public:
  /// not_permitted, unsupported: this process or kernel cannot; the text says which.
  static Result<std::unique_ptr<CacheMount>> make(std::uint64_t limit_bytes);
  /// That of an earlier daemon, by its two mounts; duplicated. first_name: none that it gave is as
  /// high.
  static Result<std::unique_ptr<CacheMount>> adopt(int writable, int read_only,
                                                   std::uint64_t first_name);
  /// From now on files keep their names as long as they live, for a daemon to come.
  void keep_names() { names_kept_ = true; }
  int writable_fd() const { return writable_->get(); }
  int read_only_fd() const { return read_only_.get(); }

  /// A file of zeros, mapped. no_space, io.
  Result<std::shared_ptr<CacheFile>> create(std::uint64_t length);
  /// A file of an earlier daemon, by its name. not_found.
  Result<std::shared_ptr<CacheFile>> reopen(std::uint64_t name);
  /// Removes the files of other names.
  void remove_others(const std::vector<std::uint64_t>& names);

 private:
  CacheMount(UniqueFd writable, UniqueFd read_only)
      : writable_(std::make_shared<const UniqueFd>(std::move(writable))),
        read_only_(std::move(read_only)) {}
  Result<std::shared_ptr<CacheFile>> map(UniqueFd writable, UniqueFd read_only,
                                         std::uint64_t length, std::uint64_t name);

  const std::shared_ptr<const UniqueFd> writable_;
  const UniqueFd read_only_;
  bool names_kept_ = false;                  // set before the first file
  std::atomic<std::uint64_t> next_name_{1};  // pairs with nothing
};

}  // namespace starlane::client
