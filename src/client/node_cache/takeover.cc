// The node cache from one daemon to the next: complete copies stay where they are, and the kernel's
// opens of them go on.
#include "client/node_cache/copy_record.h"
#include "client/node_cache/node_cache.h"

namespace starlane::client {
namespace {

Ledger::Key copy_key(FileKey file, std::uint8_t number) {
  return {Ledger::Kind::copy, file.branch.value, std::uint64_t{number} << 40 | file.inode.value};
}

}  // namespace

Result<std::unique_ptr<CacheMount>> NodeCache::open_mount() {
  Ledger* ledger = options_.ledger;
  if (ledger != nullptr && options_.cache_left >= 0 && options_.view_left >= 0) {
    auto mount = SL_TRY(
        CacheMount::adopt(options_.cache_left, options_.view_left, ledger->generation() << 32));
    mount->keep_names();
    return mount;
  }
  // What writers add to a copy is noticed a little late.
  auto mount = SL_TRY(CacheMount::make(budget_ + budget_ / 8));
  if (ledger == nullptr || !options_.keep) return mount;
  mount->keep_names();
  options_.keep(mount->writable_fd(), mount->read_only_fd());
  return mount;
}

void NodeCache::restore() {
  std::vector<std::uint64_t> names;
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::cached_file)) {
    const auto record = plain_of<CachedFileRecord>(entry.value);
    if (!record) continue;
    File& file = files_[{BranchId(entry.key.a), InodeId(entry.key.b)}];
    file.preferred = record->preferred;
    file.last_number = record->last_number;
    file.slot = record->slot;
    file.noted = static_cast<std::uint16_t>(file.preferred << 8 | file.last_number);
  }
  for (const Ledger::Entry& entry : options_.ledger->all(Ledger::Kind::copy)) {
    const auto record = plain_of<CopyRecord>(entry.value);
    const FileKey key{BranchId(entry.key.a), InodeId(entry.key.b & (kInodeLimit - 1))};
    if (record) restore_copy(key, static_cast<std::uint8_t>(entry.key.b >> 40), *record);
  }
  for (auto& [key, file] : files_) {
    if (file.live) names.push_back(file.live->file->name());
    if (!file.live || file.live->number != file.preferred) file.preferred = 0;
    if (file.last_number != 0) file.incarnations[file.last_number].slot = file.slot;
  }
  mount_->remove_others(names);
  tracked_.store(files_.size(), std::memory_order_relaxed);
}

void NodeCache::restore_copy(FileKey key, std::uint8_t number, const CopyRecord& record) {
  auto reopened = mount_->reopen(record.name);
  File& file = files_[key];
  if (!reopened.ok() || number != file.last_number)  // another one has come since
    return options_.ledger->erase(copy_key(key, number));
  auto copy = std::make_shared<Copy>();
  copy->number = number;
  copy->state = {record.version, record.length};
  copy->file = std::move(reopened.value());
  copy->fill = std::make_shared<Fill>(key, copy->state, record.length, options_.fill_read_bytes,
                                      copy->file, Node{});
  copy->fill->complete_already();
  copy->charged = round_up(copy->file->length(), kHugePage);
  copy->last_used = ++use_counter_;
  copy->taken_over = true;
  used_ += copy->charged;
  Incarnation& incarnation = file.incarnations[number];
  incarnation.slot = file.slot;
  incarnation.named = true;
  file.live = std::move(copy);
}

void NodeCache::reopened(FileKey key, Node node, bool writer, bool passthrough) {
  MutexLock lock(m_);
  File& file = files_[key];
  tracked_.store(files_.size(), std::memory_order_relaxed);
  Incarnation& here = file.incarnations[node.incarnation];
  here.slot = file.slot = node.slot;
  here.named = here.named || node.incarnation != 0;
  if (passthrough) {
    if (!here.copy) here.copy = copy_of(key, file, node.incarnation);
    ++here.passthrough_opens;
    ++here.copy->opens;
  } else {
    ++here.cached_opens;
  }
  ++file.opens;
  if (writer) ++file.writers;
}

/// One that was retired is read by the kernel alone, through the number that it has.
NodeCache::CopyPointer NodeCache::copy_of(FileKey key, File& file, std::uint8_t number) {
  if (file.live && file.live->number == number) return file.live;
  auto copy = std::make_shared<Copy>();
  copy->number = number;
  copy->fill =
      std::make_shared<Fill>(key, FileState{}, 0, options_.fill_read_bytes, nullptr, Node{});
  copy->fill->complete_already();
  return copy;
}

void NodeCache::note_file(FileKey key, File& file) {
  const auto now = static_cast<std::uint16_t>(file.preferred << 8 | file.last_number);
  if (options_.ledger == nullptr || file.noted == now || file.last_number == 0) return;
  const CachedFileRecord record{file.preferred, file.last_number, file.slot, 0};
  const Ledger::Key place{Ledger::Kind::cached_file, key.branch.value, key.inode.value};
  if (options_.ledger->put_plain(place, record).ok()) file.noted = now;
}

void NodeCache::note_copy(FileKey key, const Copy& copy) {
  if (options_.ledger == nullptr || !copy.file || copy.file->name() == 0) return;
  const CopyRecord record{copy.state.version, copy.state.length, copy.file->name()};
  options_.ledger->note_plain(copy_key(key, copy.number), record);
}

void NodeCache::strike_copy(FileKey key, const Copy& copy) {
  if (options_.ledger != nullptr) options_.ledger->erase(copy_key(key, copy.number));
}

}  // namespace starlane::client
