#include "client/write/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "common/errno.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kBytesPerRecord = 16_KiB;

std::atomic_ref<std::uint32_t> state_of(ArenaRecord* record) {
  return std::atomic_ref(record->state);
}

Result<ArenaHeader> read_header(int fd, std::uint64_t* file_bytes) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return system_error("stat of the write arena", errno);
  ArenaHeader header;
  if (::pread(fd, &header, sizeof header, 0) != ssize_t{sizeof header}) {
    return Status(Errc::invalid, "the write arena has no header");
  }
  *file_bytes = static_cast<std::uint64_t>(st.st_size);
  SL_TRY(check(header, *file_bytes));
  return header;
}

}  // namespace

Status check(const ArenaHeader& header, std::uint64_t file_bytes) {
  if (header.magic != ArenaHeader::kMagic)
    return Status(Errc::invalid, "this is not a write arena");
  if (header.version != ArenaHeader::kVersion || header.record_bytes != sizeof(ArenaRecord)) {
    return Status(Errc::invalid, "the write arena is of version " + std::to_string(header.version) +
                                     ", this build knows " + std::to_string(ArenaHeader::kVersion));
  }
  const bool fits =
      header.data_bytes <= file_bytes && header.data_offset <= file_bytes - header.data_bytes &&
      header.data_offset >= ArenaHeader::kRecordsOffset &&
      header.records <= (header.data_offset - ArenaHeader::kRecordsOffset) / sizeof(ArenaRecord);
  if (!fits) return Status(Errc::invalid, "the write arena's header does not fit its size");
  return {};
}

Result<UniqueFd> Arena::create(std::uint64_t data_bytes) {
  ArenaHeader header;
  header.data_bytes = std::max(round_down(data_bytes, kBlockSize), kBlockSize);
  header.records = header.data_bytes / kBytesPerRecord;
  header.data_offset =
      round_up(ArenaHeader::kRecordsOffset + header.records * sizeof(ArenaRecord), kHugePage);
  UniqueFd fd(::memfd_create("starlane-arena", MFD_CLOEXEC));
  if (!fd) return system_error("memfd_create of the write arena", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(header.data_offset + header.data_bytes)) != 0) {
    return system_error("size of the write arena", errno);
  }
  if (::pwrite(fd.get(), &header, sizeof header, 0) != ssize_t{sizeof header}) {
    return system_error("header of the write arena", errno);
  }
  return fd;
}

Result<std::shared_ptr<Arena>> Arena::open(int fd) {
  std::uint64_t bytes = 0;
  const ArenaHeader header = SL_TRY(read_header(fd, &bytes));
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return system_error("duplicate of the write arena", errno);
  void* const map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
  if (map == MAP_FAILED) return system_error("mapping of the write arena", errno);
  static_cast<void>(::madvise(map, bytes, MADV_HUGEPAGE));  // a hint
  std::shared_ptr<Arena> arena(new Arena(std::move(own), static_cast<std::byte*>(map), header));
  for (std::uint32_t i = 0; i < header.records; ++i) {
    if (arena->at(i)->state != ArenaRecord::kFree)
      return Status(Errc::invalid, "the write arena still holds extents");
  }
  return arena;
}

Arena::Arena(UniqueFd fd, std::byte* map, const ArenaHeader& header)
    : fd_(std::move(fd)),
      map_(map),
      map_bytes_(header.data_offset + header.data_bytes),
      data_(map + header.data_offset),
      data_bytes_(header.data_bytes),
      buddy_(static_cast<std::uint32_t>(header.data_bytes / kUnit), kTopOrder) {
  free_records_.reserve(header.records);
  for (std::uint64_t i = header.records; i != 0; --i)
    free_records_.push_back(static_cast<std::uint32_t>(i - 1));
}

Arena::~Arena() { ::munmap(map_, map_bytes_); }

ArenaRecord* Arena::at(std::uint32_t record) const {
  return reinterpret_cast<ArenaRecord*>(map_ + ArenaHeader::kRecordsOffset) + record;
}

std::shared_ptr<Arena::Memory> Arena::try_take(std::uint64_t bytes) {
  const std::uint64_t units = std::bit_ceil(divide_up(bytes, kUnit));
  const auto order = static_cast<unsigned>(std::countr_zero(units));
  SL_CHECK(order <= kTopOrder);
  std::optional<std::uint32_t> unit;
  {
    MutexLock lock(m_);
    unit = buddy_.take(order);
  }
  return unit ? std::make_shared<Memory>(shared_from_this(), *unit, order) : nullptr;
}

void Arena::give(std::uint32_t unit, unsigned order) {
  MutexLock lock(m_);
  buddy_.give(unit, order);
  ++given_;
  freed_.notify_all();
}

std::optional<std::uint32_t> Arena::try_take_record() {
  MutexLock lock(m_);
  if (free_records_.empty()) return std::nullopt;
  const std::uint32_t record = free_records_.back();
  free_records_.pop_back();
  return record;
}

void Arena::give_record(std::uint32_t record) {
  if (kept_.load()) return;
  state_of(at(record)).store(ArenaRecord::kFree, std::memory_order_release);
  MutexLock lock(m_);
  free_records_.push_back(record);
  ++given_;
  freed_.notify_all();
}

void Arena::wait_for_room(Nanoseconds duration) {
  const Deadline until = Deadline::after(duration);
  MutexLock lock(m_);
  const std::uint64_t given = given_;
  while (given_ == given && !until.passed()) freed_.wait_for(m_, until.left());
}

void Arena::write_record(std::uint32_t record, const ArenaRecord& value) {
  ArenaRecord* const to = at(record);
  to->flags = value.flags;
  to->branch = value.branch;
  to->inode = value.inode;
  to->offset = value.offset;
  to->length = value.length;
  to->arena_offset = value.arena_offset;
  to->sequence = value.sequence;
  to->slice = value.slice;
  state_of(to).store(ArenaRecord::kLive, std::memory_order_release);  // pairs with whoever replays
}

void Arena::set_record_length(std::uint32_t record, std::uint64_t length) {
  std::atomic_ref(at(record)->length)
      .store(length, std::memory_order_release);  // pairs with whoever replays
}

void Arena::set_record_slice(std::uint32_t record, std::uint64_t slice) {
  std::atomic_ref(at(record)->slice)
      .store(slice, std::memory_order_release);  // pairs with whoever replays
}

std::uint64_t Arena::used_bytes() const {
  MutexLock lock(m_);
  return data_bytes_ - buddy_.free_units() * kUnit;
}

}  // namespace starlane::client
