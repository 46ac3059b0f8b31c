// The files that are open on this host, or being changed: what their handles share. Any thread.
// Locks: the table's, or a file's, each a leaf.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/file_io.h"
#include "client/handles/turn.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

class OpenFile {
 public:
  explicit OpenFile(FileKey file) : key(file) {}

  const FileKey key;
  Turn turn;

  /// Counts an open; waits while the file is being unlinked, so that the unlink knows of it or it
  /// of the unlink.
  void opened(bool writer) SL_EXCLUDES(m_);
  /// True: it was the last one, of a file that has no name any more.
  bool closed(bool writer) SL_EXCLUDES(m_);

  /// Between these no open begins. True: it is open.
  bool begin_unlink() SL_EXCLUDES(m_);
  void end_unlink() SL_EXCLUDES(m_);
  /// Whether it has a name. Without one its dirty bytes go with the last close.
  void mark_unlinked(bool unlinked) SL_EXCLUDES(m_);
  bool held_unlinked() SL_EXCLUDES(m_);

  bool open() SL_EXCLUDES(m_);
  bool has_writer() SL_EXCLUDES(m_);
  void note_direct(int change) SL_EXCLUDES(m_);
  bool open_cached() SL_EXCLUDES(m_);

  /// The newest committed state that this host has heard of.
  FileState state() SL_EXCLUDES(m_);
  /// False: only an earlier daemon has heard of its state.
  bool heard_of() SL_EXCLUDES(m_);
  void learn(const FileState& state) SL_EXCLUDES(m_);

 private:
  Mutex m_;
  CondVar unlinked_or_not_;
  int opens_ SL_GUARDED_BY(m_) = 0;
  int writers_ SL_GUARDED_BY(m_) = 0;
  int direct_ SL_GUARDED_BY(m_) = 0;
  int unlinking_ SL_GUARDED_BY(m_) = 0;
  bool unlinked_ SL_GUARDED_BY(m_) = false;
  bool heard_ SL_GUARDED_BY(m_) = false;
  FileState state_ SL_GUARDED_BY(m_);
};

class OpenFiles {
 public:
  /// The one object of a file; it lives as long as somebody has it.
  std::shared_ptr<OpenFile> get(FileKey file) SL_EXCLUDES(m_);
  /// Null: nobody has it.
  std::shared_ptr<OpenFile> find(FileKey file) SL_EXCLUDES(m_);
  std::vector<std::shared_ptr<OpenFile>> all() SL_EXCLUDES(m_);

 private:
  void drop(FileKey file) SL_EXCLUDES(m_);

  Mutex m_;
  std::unordered_map<FileKey, std::weak_ptr<OpenFile>> files_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
