// What a daemon writes down for the one that comes after it: small values under a key, in a memfd
// that the holder keeps. Each change is whole or not there, wherever this process is killed. Any
// thread; nothing blocks but a copy when the log is full.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "client/takeover/ledger_format.h"
#include "common/bytes.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::client {

class Ledger {
 public:
  /// What a record is of. Numbers are never used again; a build passes over those it does not know.
  enum class Kind : std::uint16_t {
    session = 1,        // the nonce of the session
    mount = 2,          // of the kernel's connection (fuse/session)
    view = 3,           // slot
    file = 4,           // handle
    directory = 5,      // handle
    page = 6,           // handle, number of its first name
    unlinked = 7,       // branch, inode: open here, without a name
    append = 8,         // unique: where the bytes of an append belong
    moved = 9,          // pid: was told to look a name up again
    backing = 10,       // node: the kernel's number of its cache file
    cached_file = 11,   // branch, inode: of the node cache
    copy = 12,          // branch, incarnation << 40 | inode
    record_owner = 13,  // handle, owner: may have locked through it; of fcntl's locks
    flock_owner = 14,   // the same, of flock's
    suspect = 15,       // unique: sent again, and not answered since
    lost = 16,          // branch, inode: bytes did not leave, and nobody was told of it yet
    set = 17,           // branch, inode: attributes that go with the next commit
  };
  struct Key {
    Kind kind;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::vector<std::byte> value;
  };

  static Result<UniqueFd> create();
  /// The next daemon: its generation is one more. Keeps a duplicate.
  static Result<std::unique_ptr<Ledger>> open(int fd);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// 1: the first daemon of the mount.
  std::uint64_t generation() const { return generation_; }
  bool taken_over() const { return generation_ > 1; }
  int fd() const { return fd_.get(); }

  /// no_memory: it is not written down.
  Status put(const Key& key, ByteSpan value) SL_EXCLUDES(m_);
  template <typename T>
  Status put_plain(const Key& key, const T& value) {
    return put(key, std::as_bytes(std::span(&value, 1)));
  }
  /// put, for those who cannot do without it but should not fail for it: a failure is logged.
  void note(const Key& key, ByteSpan value) SL_EXCLUDES(m_);
  template <typename T>
  void note_plain(const Key& key, const T& value) {
    note(key, std::as_bytes(std::span(&value, 1)));
  }
  void erase(const Key& key) SL_EXCLUDES(m_);

  std::optional<std::vector<std::byte>> get(const Key& key) SL_EXCLUDES(m_);
  std::vector<Entry> all(Kind kind) SL_EXCLUDES(m_);

 private:
  struct HashKey {
    std::size_t operator()(const Key& key) const {
      return mix64(key.a * 31 + static_cast<std::uint64_t>(key.kind)) ^ mix64(key.b);
    }
  };

  Ledger(UniqueFd fd, std::byte* header);
  Status map(const LedgerHeader::Region& region) SL_REQUIRES(m_);
  Status read_log() SL_REQUIRES(m_);
  LedgerRecord* at(std::uint64_t offset) const SL_REQUIRES(m_);
  Status make_room(std::uint64_t bytes) SL_REQUIRES(m_);
  void append(const Key& key, ByteSpan value) SL_REQUIRES(m_);

  const UniqueFd fd_;
  std::byte* const header_;
  std::uint64_t generation_ = 0;
  Mutex m_;
  std::byte* log_ SL_GUARDED_BY(m_) = nullptr;
  LedgerHeader::Region region_ SL_GUARDED_BY(m_);
  std::uint64_t used_ SL_GUARDED_BY(m_) = 0;
  std::uint64_t live_ SL_GUARDED_BY(m_) = 0;  // bytes of live records
  std::unordered_map<Key, std::uint64_t, HashKey> index_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
