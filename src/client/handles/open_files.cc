#include "client/handles/open_files.h"

namespace starlane::client {

void OpenFile::opened(bool writer) {
  MutexLock lock(m_);
  while (unlinking_ != 0) unlinked_or_not_.wait(m_);
  ++opens_;
  if (writer) ++writers_;
}

bool OpenFile::closed(bool writer) {
  MutexLock lock(m_);
  if (writer) --writers_;
  return --opens_ == 0 && unlinked_;
}

bool OpenFile::begin_unlink() {
  MutexLock lock(m_);
  ++unlinking_;
  return opens_ != 0;
}

void OpenFile::end_unlink() {
  MutexLock lock(m_);
  --unlinking_;
  unlinked_or_not_.notify_all();
}

void OpenFile::mark_unlinked(bool unlinked) {
  MutexLock lock(m_);
  unlinked_ = unlinked;
}

bool OpenFile::held_unlinked() {
  MutexLock lock(m_);
  return unlinked_ && opens_ != 0;
}

bool OpenFile::open() {
  MutexLock lock(m_);
  return opens_ != 0;
}

bool OpenFile::has_writer() {
  MutexLock lock(m_);
  return writers_ != 0;
}

void OpenFile::note_direct(int change) {
  MutexLock lock(m_);
  direct_ += change;
}

bool OpenFile::open_cached() {
  MutexLock lock(m_);
  return opens_ > direct_;
}

FileState OpenFile::state() {
  MutexLock lock(m_);
  return state_;
}

void OpenFile::learn(const FileState& state) {
  MutexLock lock(m_);
  heard_ = true;
  if (state.version >= state_.version) state_ = state;
}

bool OpenFile::heard_of() {
  MutexLock lock(m_);
  return heard_;
}

std::shared_ptr<OpenFile> OpenFiles::get(FileKey file) {
  MutexLock lock(m_);
  std::weak_ptr<OpenFile>& known = files_[file];
  if (auto alive = known.lock()) return alive;
  std::shared_ptr<OpenFile> fresh(new OpenFile(file), [this](OpenFile* dead) {
    const FileKey key = dead->key;
    delete dead;
    drop(key);
  });
  known = fresh;
  return fresh;
}

std::shared_ptr<OpenFile> OpenFiles::find(FileKey file) {
  MutexLock lock(m_);
  const auto at = files_.find(file);
  return at == files_.end() ? nullptr : at->second.lock();
}

void OpenFiles::drop(FileKey file) {
  MutexLock lock(m_);
  const auto at = files_.find(file);
  if (at != files_.end() && at->second.expired()) files_.erase(at);
}

std::vector<std::shared_ptr<OpenFile>> OpenFiles::all() {
  std::vector<std::shared_ptr<OpenFile>> files;
  MutexLock lock(m_);
  files.reserve(files_.size());
  for (auto& [key, known] : files_)
    if (auto alive = known.lock()) files.push_back(std::move(alive));
  return files;
}

}  // namespace starlane::client
