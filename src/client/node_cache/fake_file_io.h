// For tests of the node cache: a FileIo whose files lie in memory, that counts what is fetched, and
// that is as slow or as broken as the test wants. Any thread.
#pragma once
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/file_io.h"
#include "common/mutex.h"

namespace starlane::client {

class FakeFileIo final : public FileIo {
 public:
  /// Replaces the file's bytes; a fill of an older version fails from now on.
  void put(FileKey file, std::uint64_t version,
           std::shared_ptr<const std::vector<std::byte>> bytes) {
    MutexLock lock(m_);
    files_[file] = {version, std::move(bytes)};
  }
  std::atomic<std::uint64_t> fetched{0};
  std::atomic<std::int64_t> delay_us{0};  // of each read_into
  std::atomic<bool> blocked{false};       // read_into waits
  std::atomic<int> fail_next{0};

  Result<std::uint64_t> read_into(FileKey file, const FileState& known, std::uint64_t offset,
                                  const Landing& out, std::uint64_t) override {
    while (blocked.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (delay_us.load() > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us.load()));
    if (fail_next.load() > 0 && fail_next.fetch_sub(1) > 0)
      return Status(Errc::io, "as the test wants it");
    Version version;
    {
      MutexLock lock(m_);
      version = files_[file];
      begun_.push_back(offset);
    }
    if (!version.bytes || version.number != known.version)
      return Status(Errc::stale, "another version");
    if (offset >= version.bytes->size()) return std::uint64_t{0};
    const std::size_t n = std::min(out.size(), version.bytes->size() - offset);
    SL_TRY(out.put(0, ByteSpan(*version.bytes).subspan(offset, n)));
    fetched.fetch_add(n);
    return std::uint64_t{n};
  }

  /// Where each read_into began, in order.
  std::vector<std::uint64_t> begun() {
    MutexLock lock(m_);
    return begun_;
  }

  // The node cache asks for nothing else.
  void on_commit(Committed) override {}
  std::shared_ptr<ReadStreams> new_streams() override { return nullptr; }
  Result<std::vector<Piece>> read(FileKey, const FileState&, std::uint64_t, std::uint32_t,
                                  ReadStreams*, std::uint64_t) override {
    return unused();
  }
  Status write(const Write&) override { return unused(); }
  Result<std::uint64_t> append(const Write&, Safety) override { return unused(); }
  std::optional<DirtyState> dirty(FileKey) override { return std::nullopt; }
  bool put_off(FileKey, const SetStat&) override { return false; }
  Status flush(FileKey, Safety) override { return unused(); }
  void push_out(FileKey) override {}
  Status flush_branch(BranchId, Safety) override { return unused(); }
  Status flush_all(Safety) override { return unused(); }
  void lost(FileKey, const Status&) override {}
  void discard(FileKey, std::uint64_t) override {}
  void invalidate(FileKey) override {}
  void return_escrow(BranchId) override {}
  void interrupt(std::uint64_t) override {}
  Figures figures() override { return {}; }

 private:
  struct Version {
    std::uint64_t number = 0;
    std::shared_ptr<const std::vector<std::byte>> bytes;
  };
  static Status unused() { return Status(Errc::unsupported, "not part of the fake"); }

  Mutex m_;
  std::map<FileKey, Version> files_ SL_GUARDED_BY(m_);
  std::vector<std::uint64_t> begun_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
