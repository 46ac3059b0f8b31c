#include "client/write/dirty_files.h"

namespace starlane::client {

DirtyFiles::Ref& DirtyFiles::Ref::operator=(Ref&& other) noexcept {
  if (this == &other) return *this;
  release();
  files_ = other.files_;
  file_ = std::move(other.file_);
  return *this;
}

void DirtyFiles::Ref::release() {
  if (file_) files_->release(*file_);
  file_.reset();
}

DirtyFiles::Ref DirtyFiles::find(FileKey key) {
  Shard& shard = shard_of(key);
  MutexLock lock(shard.m);
  const auto at = shard.files.find(key);
  if (at == shard.files.end()) return {};
  ++at->second.users;
  return {this, at->second.file};
}

DirtyFiles::Ref DirtyFiles::find_or_add(FileKey key) {
  Shard& shard = shard_of(key);
  MutexLock lock(shard.m);
  Entry& entry = shard.files[key];
  if (!entry.file) entry.file = std::make_shared<DirtyFile>(key, arena_);
  ++entry.users;
  return {this, entry.file};
}

std::vector<DirtyFiles::Ref> DirtyFiles::all(BranchId branch) {
  std::vector<Ref> files;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.m);
    for (auto& [key, entry] : shard.files) {
      if (branch && key.branch != branch) continue;
      ++entry.users;
      files.push_back(Ref(this, entry.file));
    }
  }
  return files;
}

void DirtyFiles::release(DirtyFile& file) {
  Shard& shard = shard_of(file.key);
  MutexLock lock(shard.m);
  const auto at = shard.files.find(file.key);
  if (--at->second.users != 0) return;
  bool keep = false;
  {
    MutexLock file_lock(file.m);
    keep = file.is_dirty() || !file.error.ok();
  }
  if (!keep) shard.files.erase(at);
}

}  // namespace starlane::client
