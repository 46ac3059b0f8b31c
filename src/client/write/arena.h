// Where bytes wait between write() and the block servers: memory behind a memfd, with a record for
// each extent in the same memfd, so that whoever holds the descriptor can hand what was
// acknowledged to the next daemon (replay.h) when this one dies. Bounded by the size of the memfd;
// memory is used again, warm. Any thread.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "client/blocks/buddy.h"
#include "client/write/arena_format.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace starlane::client {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static constexpr std::uint64_t kUnit = 4_KiB;
  static constexpr unsigned kTopOrder = 10;  // 4 MiB, a block

  /// An empty arena: data_bytes rounded down to 4 MiB, one record per 16 KiB of them.
  static Result<UniqueFd> create(std::uint64_t data_bytes);
  /// Takes over a memfd of `create`, whose records must be free (replay what it holds into another
  /// one). Keeps a duplicate.
  static Result<std::shared_ptr<Arena>> open(int fd);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A piece of memory, free again with the last reference to it.
  class Memory {
   public:
    Memory(std::shared_ptr<Arena> arena, std::uint32_t unit, unsigned order)
        : arena_(std::move(arena)), unit_(unit), order_(order) {}
    ~Memory() { arena_->give(unit_, order_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::byte* data() const { return arena_->data_ + unit_ * kUnit; }
    std::uint64_t size() const { return kUnit << order_; }
    std::uint64_t offset() const { return unit_ * kUnit; }  // in the data area

   private:
    const std::shared_ptr<Arena> arena_;
    const std::uint32_t unit_;
    const unsigned order_;
  };

  /// Memory of at least `bytes` (at most 4 MiB); null when there is none now.
  std::shared_ptr<Memory> try_take(std::uint64_t bytes) SL_EXCLUDES(m_);
  /// A free record; nothing when there is none now. Whoever takes one gives it back.
  std::optional<std::uint32_t> try_take_record() SL_EXCLUDES(m_);
  void give_record(std::uint32_t record) SL_EXCLUDES(m_);
  /// Until memory or a record is given back, or the duration has passed.
  void wait_for_room(Nanoseconds duration) SL_EXCLUDES(m_);

  /// What a restarted daemon must know; from then on it will find the extent.
  void write_record(std::uint32_t record, const ArenaRecord& value);
  void set_record_length(std::uint32_t record, std::uint64_t length);
  void set_record_slice(std::uint32_t record, std::uint64_t slice);
  /// From now on no record is freed: this daemon ends, and what it has not committed is for the
  /// next one.
  void keep_records() { kept_ = true; }
  std::uint64_t next_sequence() { return ++sequence_; }

  std::uint64_t data_bytes() const { return data_bytes_; }
  std::uint64_t used_bytes() const SL_EXCLUDES(m_);

 private:
  Arena(UniqueFd fd, std::byte* map, const ArenaHeader& header);
  void give(std::uint32_t unit, unsigned order) SL_EXCLUDES(m_);
  ArenaRecord* at(std::uint32_t record) const;

  const UniqueFd fd_;
  std::byte* const map_;
  const std::uint64_t map_bytes_;
  std::byte* const data_;
  const std::uint64_t data_bytes_;
  std::atomic<std::uint64_t> sequence_{0};  // of records; only its order counts
  std::atomic<bool> kept_{
      false};  // pairs with nothing: a record that is freed meanwhile was committed
  mutable Mutex m_;
  CondVar freed_;
  std::uint64_t given_ SL_GUARDED_BY(m_) = 0;  // counts what was given back
  Buddy buddy_ SL_GUARDED_BY(m_);
  std::vector<std::uint32_t> free_records_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
