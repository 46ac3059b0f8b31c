#include "client/takeover/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "common/errno.h"
#include "common/log.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kFirstRegion = 1_MiB;

std::uint64_t whole_bytes(std::uint64_t value_bytes) {
  return sizeof(LedgerRecord) + round_up(value_bytes, 8);
}

std::atomic_ref<std::uint32_t> state_of(LedgerRecord* record) {
  return std::atomic_ref(record->state);
}

const char* name_of(Ledger::Kind kind) {
  static constexpr const char* kNames[] = {
      "",     "session",      "mount",       "view",    "file",    "directory",
      "page", "unlinked",     "append",      "moved",   "backing", "cached_file",
      "copy", "record_owner", "flock_owner", "suspect", "lost"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Ledger::Kind::lost) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::byte* value_of(LedgerRecord* record) { return reinterpret_cast<std::byte*>(record + 1); }

}  // namespace

Status check(const LedgerHeader& header, std::uint64_t file_bytes) {
  if (header.magic != LedgerHeader::kMagic) return Status(Errc::invalid, "this is not a ledger");
  if (header.version != LedgerHeader::kVersion)
    return Status(Errc::invalid, "the mount's ledger is of version " +
                                     std::to_string(header.version) + ", this build knows " +
                                     std::to_string(LedgerHeader::kVersion));
  if (header.current > 1) return Status(Errc::invalid, "the mount's ledger is damaged");
  const LedgerHeader::Region& region = header.regions[header.current];
  const bool fits = region.bytes <= file_bytes && region.offset <= file_bytes - region.bytes &&
                    region.offset >= LedgerHeader::kBytes && region.offset % 4096 == 0 &&
                    region.bytes % 4096 == 0 && region.bytes != 0;
  if (!fits) return Status(Errc::invalid, "the mount's ledger does not fit its size");
  return {};
}

Result<UniqueFd> Ledger::create() {
  UniqueFd fd(::memfd_create("starlane-ledger", MFD_CLOEXEC));
  if (!fd) return system_error("memfd_create of the mount's ledger", errno);
  LedgerHeader header;
  header.regions[0] = {LedgerHeader::kBytes, kFirstRegion};
  if (::ftruncate(fd.get(), static_cast<off_t>(LedgerHeader::kBytes + kFirstRegion)) != 0 ||
      ::pwrite(fd.get(), &header, sizeof header, 0) != ssize_t{sizeof header})
    return system_error("cannot write the mount's ledger", errno);
  return fd;
}

Result<std::unique_ptr<Ledger>> Ledger::open(int fd) {
  struct stat status {};
  LedgerHeader header;
  if (::fstat(fd, &status) != 0 || ::pread(fd, &header, sizeof header, 0) != ssize_t{sizeof header})
    return Status(Errc::invalid, "the mount's ledger cannot be read");
  SL_TRY(check(header, static_cast<std::uint64_t>(status.st_size)));
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return system_error("duplicate of the mount's ledger", errno);
  void* page =
      ::mmap(nullptr, LedgerHeader::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
  if (page == MAP_FAILED) return system_error("mapping of the mount's ledger", errno);
  std::unique_ptr<Ledger> ledger(new Ledger(std::move(own), static_cast<std::byte*>(page)));
  MutexLock lock(ledger->m_);
  SL_TRY(ledger->map(header.regions[header.current]));
  SL_TRY(ledger->read_log());
  ledger->generation_ = ++reinterpret_cast<LedgerHeader*>(page)->generation;
  return ledger;
}

Ledger::Ledger(UniqueFd fd, std::byte* header) : fd_(std::move(fd)), header_(header) {}

Ledger::~Ledger() {
  if (log_ != nullptr) ::munmap(log_, region_.bytes);
  ::munmap(header_, LedgerHeader::kBytes);
}

Status Ledger::map(const LedgerHeader::Region& region) {
  void* mapped = ::mmap(nullptr, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                        static_cast<off_t>(region.offset));
  if (mapped == MAP_FAILED) return system_error("mapping of the mount's ledger", errno);
  if (log_ != nullptr) ::munmap(log_, region_.bytes);
  log_ = static_cast<std::byte*>(mapped);
  region_ = region;
  return {};
}

LedgerRecord* Ledger::at(std::uint64_t offset) const {
  return reinterpret_cast<LedgerRecord*>(log_ + offset);
}

/// Of two records under one key, the later counts: its writer died before it marked the first.
Status Ledger::read_log() {
  for (used_ = 0; used_ + sizeof(LedgerRecord) <= region_.bytes;) {
    LedgerRecord* record = at(used_);
    const std::uint32_t state = state_of(record).load(std::memory_order_acquire);
    if (state == LedgerRecord::kEnd) break;
    const std::uint64_t bytes = whole_bytes(record->value_bytes);
    if (bytes > region_.bytes - used_)
      return Status(Errc::invalid, "the mount's ledger is damaged");
    if (state == LedgerRecord::kLive) {
      const Key key{static_cast<Kind>(record->kind), record->a, record->b};
      const auto [known, added] = index_.try_emplace(key, used_);
      if (!added) {
        live_ -= whole_bytes(at(known->second)->value_bytes);
        state_of(at(known->second)).store(LedgerRecord::kDead, std::memory_order_release);
        known->second = used_;
      }
      live_ += bytes;
    }
    used_ += bytes;
  }
  return {};
}

Status Ledger::put(const Key& key, ByteSpan value) {
  MutexLock lock(m_);
  SL_TRY(make_room(whole_bytes(value.size())));
  const auto known = index_.find(key);
  LedgerRecord* before = known == index_.end() ? nullptr : at(known->second);
  append(key, value);
  if (before == nullptr) return {};
  live_ -= whole_bytes(before->value_bytes);
  state_of(before).store(LedgerRecord::kDead, std::memory_order_release);
  return {};
}

/// There is room. What lies behind it may be the half of a longer record, whose writer died before
/// it counted: so the end is marked first.
void Ledger::append(const Key& key, ByteSpan value) {
  LedgerRecord* record = at(used_);
  const std::uint64_t next = used_ + whole_bytes(value.size());
  if (next + sizeof(LedgerRecord) <= region_.bytes)
    state_of(at(next)).store(LedgerRecord::kEnd, std::memory_order_relaxed);
  record->value_bytes = static_cast<std::uint32_t>(value.size());
  record->kind = static_cast<std::uint16_t>(key.kind);
  record->a = key.a;
  record->b = key.b;
  if (!value.empty()) std::memcpy(value_of(record), value.data(), value.size());
  state_of(record).store(LedgerRecord::kLive, std::memory_order_release);  // pairs with read_log
  index_[key] = used_;
  used_ = next;
  live_ += whole_bytes(value.size());
}

void Ledger::note(const Key& key, ByteSpan value) {
  const Status noted = put(key, value);
  if (!noted.ok())
    SL_LOG(warn, "event=not_noted what={} cause=\"{}\"", name_of(key.kind), noted.to_string());
}

void Ledger::erase(const Key& key) {
  MutexLock lock(m_);
  const auto known = index_.find(key);
  if (known == index_.end()) return;
  LedgerRecord* record = at(known->second);
  live_ -= whole_bytes(record->value_bytes);
  state_of(record).store(LedgerRecord::kDead, std::memory_order_release);
  index_.erase(known);
}

/// What lives is copied to a region at the end of the file, and the header is turned to it in one
/// store; the old region's memory goes back. Only addresses are used up, not memory.
Status Ledger::make_room(std::uint64_t bytes) {
  if (bytes <= region_.bytes - used_) return {};
  const LedgerHeader::Region old = region_;
  const LedgerHeader::Region fresh{old.offset + old.bytes,
                                   round_up(std::max(kFirstRegion, 2 * (live_ + bytes)), 4096)};
  if (::ftruncate(fd_.get(), static_cast<off_t>(fresh.offset + fresh.bytes)) != 0)
    return system_error("no room for the mount's ledger", errno);
  void* before =
      ::mmap(nullptr, old.bytes, PROT_READ, MAP_SHARED, fd_.get(), static_cast<off_t>(old.offset));
  if (before == MAP_FAILED) return system_error("no room for the mount's ledger", errno);
  const auto* from = static_cast<std::byte*>(before);
  Status mapped = map(fresh);
  if (mapped.ok()) {
    const auto index = std::exchange(index_, {});
    used_ = live_ = 0;
    for (const auto& [key, offset] : index) {
      const auto record = load_little<LedgerRecord>(from + offset);
      append(key, {from + offset + sizeof(LedgerRecord), record.value_bytes});
    }
    auto* header = reinterpret_cast<LedgerHeader*>(header_);
    const std::uint32_t next = 1 - header->current;
    header->regions[next] = fresh;
    std::atomic_ref(header->current).store(next, std::memory_order_release);  // pairs with open
    static_cast<void>(::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(old.offset), static_cast<off_t>(old.bytes)));
  }
  ::munmap(before, old.bytes);
  return mapped;
}

std::optional<std::vector<std::byte>> Ledger::get(const Key& key) {
  MutexLock lock(m_);
  const auto known = index_.find(key);
  if (known == index_.end()) return std::nullopt;
  LedgerRecord* record = at(known->second);
  return std::vector<std::byte>(value_of(record), value_of(record) + record->value_bytes);
}

std::vector<Ledger::Entry> Ledger::all(Kind kind) {
  std::vector<Entry> found;
  MutexLock lock(m_);
  for (const auto& [key, offset] : index_) {
    if (key.kind != kind) continue;
    LedgerRecord* record = at(offset);
    found.push_back({key, {value_of(record), value_of(record) + record->value_bytes}});
  }
  std::sort(found.begin(), found.end(), [](const Entry& x, const Entry& y) {
    return x.key.a != y.key.a ? x.key.a < y.key.a : x.key.b < y.key.b;
  });
  return found;
}

}  // namespace starlane::client
