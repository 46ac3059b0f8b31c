#include "kv/mem/mem_storage.h"

#include <algorithm>

namespace starlane::kv::mem {

namespace {
constexpr std::size_t kUnsyncedBatches = 1 << 17;
constexpr std::size_t kRowsALook = 64;  // copied under the lock before they are visited
}  // namespace

class MemView final : public occ::View {
 public:
  MemView(std::shared_ptr<Disk> disk, std::uint64_t at) : disk_(std::move(disk)), at_(at) {}
  ~MemView() override {
    MutexLock lock(disk_->m_);
    if (const auto it = disk_->views_.find(at_); it != disk_->views_.end()) disk_->views_.erase(it);
  }

  Result<std::optional<std::string>> get(std::string_view key) const override {
    MutexLock lock(disk_->m_);
    return read(key);
  }
  Result<std::vector<std::optional<std::string>>> get_many(
      const std::vector<std::string_view>& keys) const override {
    MutexLock lock(disk_->m_);
    std::vector<std::optional<std::string>> out;
    for (const auto key : keys) out.push_back(read(key));
    return out;
  }
  Status scan(std::string_view first, std::string_view last,
              const std::function<bool(std::string_view, std::string_view)>& visit) const override {
    std::string from(first);
    for (;;) {
      const auto page = look(from, last);
      for (const auto& [key, value] : page)
        if (value && !visit(key, *value)) return {};
      if (page.size() < kRowsALook) return {};
      from = page.back().first + '\0';
    }
  }

 private:
  std::optional<std::string> read(std::string_view key) const SL_REQUIRES(disk_->m_) {
    const auto it = disk_->rows_.find(key);
    return it == disk_->rows_.end() ? std::nullopt : Disk::value_at(it->second, at_);
  }
  Disk::Batch look(std::string_view first, std::string_view last) const {
    MutexLock lock(disk_->m_);
    Disk::Batch page;
    for (auto it = disk_->rows_.lower_bound(first);
         it != disk_->rows_.end() && it->first < last && page.size() < kRowsALook; ++it)
      page.emplace_back(it->first, Disk::value_at(it->second, at_));
    return page;
  }

  const std::shared_ptr<Disk> disk_;
  const std::uint64_t at_;
};

class MemStorage final : public occ::Storage {
 public:
  explicit MemStorage(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}

  Result<std::shared_ptr<const occ::View>> view() override {
    MutexLock lock(disk_->m_);
    disk_->views_.insert(disk_->now_);
    return std::shared_ptr<const occ::View>(std::make_shared<MemView>(disk_, disk_->now_));
  }
  Status write(const std::vector<occ::Change>& changes) override {
    MutexLock lock(disk_->m_);
    if (disk_->failing_writes_ > 0) return --disk_->failing_writes_, disk_->write_failure_;
    Disk::Batch batch;
    for (const occ::Change& change : changes) {
      batch.emplace_back(change.key, std::nullopt);
      if (change.value) batch.back().second = std::string(*change.value);
    }
    disk_->apply(batch);
    disk_->unsynced_.push_back(std::move(batch));
    if (disk_->unsynced_.size() <= kUnsyncedBatches) return {};
    Disk::settle(disk_->unsynced_.front(), disk_->synced_);
    disk_->unsynced_.pop_front();
    return {};
  }
  Status sync() override {
    MutexLock lock(disk_->m_);
    ++disk_->syncs_;
    if (disk_->failing_syncs_ > 0) return --disk_->failing_syncs_, disk_->sync_failure_;
    for (const Disk::Batch& batch : disk_->unsynced_) Disk::settle(batch, disk_->synced_);
    disk_->unsynced_.clear();
    return {};
  }
  Status room(bool frees) override {
    MutexLock lock(disk_->m_);
    return frees ? Status() : disk_->room_;
  }
  std::uint64_t bytes_on_device() const override {
    MutexLock lock(disk_->m_);
    std::uint64_t sum = 0;
    for (const auto& [key, history] : disk_->rows_) {
      const auto& value = history.back().value;
      if (value) sum += key.size() + value->size();
    }
    return sum;
  }

 private:
  const std::shared_ptr<Disk> disk_;
};

std::unique_ptr<occ::Storage> Disk::open() {
  return std::make_unique<MemStorage>(shared_from_this());
}

const std::optional<std::string>& Disk::value_at(const History& history, std::uint64_t at) {
  static const std::optional<std::string> kNone;
  for (auto past = history.rbegin(); past != history.rend(); ++past)
    if (past->at <= at) return past->value;
  return kNone;
}

/// One step of time for the whole batch, so that no view sees a part of it.
void Disk::apply(const Batch& batch) {
  const std::uint64_t oldest = views_.empty() ? now_ : *views_.begin();
  ++now_;
  for (const auto& [key, value] : batch) {
    History& history = rows_[key];
    if (!history.empty() && history.back().at == now_) history.pop_back();
    history.push_back({now_, value});
    // Of the values from before the oldest view only the last can still be read.
    auto keep = history.begin();
    while (std::next(keep) != history.end() && std::next(keep)->at <= oldest) ++keep;
    history.erase(history.begin(), keep);
    if (history.size() == 1 && !history.front().value) rows_.erase(key);
  }
}

void Disk::settle(const Batch& batch, std::map<std::string, std::string>& rows) {
  for (const auto& [key, value] : batch)
    if (value)
      rows[key] = *value;
    else
      rows.erase(key);
}

void Disk::lose_unsynced(std::size_t kept) {
  MutexLock lock(m_);
  for (; kept > 0 && !unsynced_.empty(); --kept) {
    settle(unsynced_.front(), synced_);
    unsynced_.pop_front();
  }
  unsynced_.clear();
  // Readers from before keep their view of an abandoned time: nobody looks at it, and it may be
  // anything.
  rows_.clear();
  ++now_;
  for (const auto& [key, value] : synced_) rows_[key] = {{now_, value}};
}

void Disk::fail_writes(int count, Status why) {
  MutexLock lock(m_);
  failing_writes_ = count;
  write_failure_ = std::move(why);
}
void Disk::fail_syncs(int count, Status why) {
  MutexLock lock(m_);
  failing_syncs_ = count;
  sync_failure_ = std::move(why);
}
void Disk::set_room(Status room) {
  MutexLock lock(m_);
  room_ = std::move(room);
}
std::size_t Disk::unsynced() const {
  MutexLock lock(m_);
  return unsynced_.size();
}
int Disk::syncs() const {
  MutexLock lock(m_);
  return syncs_;
}

}  // namespace starlane::kv::mem
