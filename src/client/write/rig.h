// A FileIo over the fake services, with the little of a namespace that its callers keep: each
// file's latest state. Tests.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "client/make_file_io.h"
#include "client/write/fake_services.h"

namespace starlane::client {

class Rig {
 public:
  explicit Rig(std::uint64_t seed = 1, FileIoOptions options = small())
      : blocks(std::make_shared<FakeBlocks>(seed)), meta(*blocks, seed + 1) {
    std::vector<pb::Target> targets(2);
    for (std::uint32_t i = 0; i < 2; ++i) {
      targets[i].set_id(i + 1);
      targets[i].set_endpoint("target " + std::to_string(i + 1));
      targets[i].set_weight(1);
      targets[i].set_state("up");
      targets[i].set_domain("host " + std::to_string(i));
    }
    meta.set_targets(targets);
    open(options);
  }

  static FileIoOptions small() {
    FileIoOptions options;
    options.cache_bytes = 16_MiB;
    options.arena_bytes = 32_MiB;
    options.read_ahead_bytes = 8_MiB;
    return options;
  }

  /// Ends the present client, as a crash would: nothing is flushed.
  void open(FileIoOptions options) {
    io.reset();
    auto made = make_file_io(
        meta, [this](const std::string&) { return blocks; }, attachments, requests, options);
    if (!made.ok()) ADD_FAILURE() << made.status().to_string();
    io = std::move(made).value();
    io->on_commit([this](FileKey file, const pb::Attributes& attributes, std::uint64_t) {
      MutexLock lock(m_);
      if (known_[file].version < attributes.version())
        known_[file] = {attributes.version(), attributes.length()};
    });
  }

  FileKey create(std::uint64_t inode, std::uint64_t branch = 7) {
    const FileKey file{BranchId(branch), InodeId(inode)};
    set_known(file, meta.create(file));
    return file;
  }
  FileState known(FileKey file) {
    MutexLock lock(m_);
    return known_[file];
  }
  void set_known(FileKey file, FileState state) {
    MutexLock lock(m_);
    known_[file] = state;
  }

  Status write(FileKey file, std::uint64_t offset, ByteSpan bytes) {
    return io->write({file, known(file), offset, bytes, false});
  }
  Status write(FileKey file, std::uint64_t offset, std::string_view text) {
    return write(file, offset, bytes_of(text));
  }
  Result<std::string> read(FileKey file, std::uint64_t offset, std::uint32_t length,
                           ReadStreams* streams = nullptr, std::uint64_t unique = 0) {
    const auto pieces = SL_TRY(io->read(file, known(file), offset, length, streams, unique));
    std::string text;
    for (const Piece& piece : pieces) text += text_of(piece.bytes);
    return text;
  }
  void truncate(FileKey file, std::uint64_t length) {
    io->discard(file, length);
    set_known(file, meta.truncate(file, length));
    io->invalidate(file);
  }

  std::shared_ptr<FakeBlocks> blocks;
  FakeMeta meta;
  FakeAttachments attachments;
  Requests requests;
  std::unique_ptr<FileIo> io;

 private:
  Mutex m_;
  std::map<FileKey, FileState> known_ SL_GUARDED_BY(m_);
};

/// Bytes that differ at every place and for every seed.
inline std::string noise(std::size_t length, std::uint64_t seed) {
  Rng rng(seed);
  std::string text(round_up(length, 8), 0);
  for (std::size_t i = 0; i < text.size(); i += 8) store_little(text.data() + i, rng.next());
  text.resize(length);
  return text;
}

}  // namespace starlane::client
