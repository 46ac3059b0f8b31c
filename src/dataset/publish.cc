#include "dataset/publish.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <unordered_map>

#include "codec/content_hash.h"
#include "common/batch.h"
#include "common/errno.h"
#include "common/thread_pool.h"
#include "common/unique_fd.h"
#include "dataset/image_tree.h"
#include "dataset/tree_digest.h"

namespace starlane::dataset {
namespace {

constexpr std::size_t kPiece = 4_MiB;

/// Runs `work` on each of `count` numbers, `workers` at a time; stops handing out at the first
/// failure.
Status for_each(std::size_t count, std::size_t workers,
                const std::function<Status(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};  // each number is taken by one worker
  std::atomic<bool> failed{false};   // set by a worker, read by all: no need to go on
  ThreadPool pool({.name = "publish", .threads = workers, .queue_limit = workers});
  Batch batch;
  batch.expect(workers);
  for (std::size_t i = 0; i < workers; ++i)
    pool.submit([&] {
      Status status;
      for (std::size_t at; status.ok() && !failed && (at = next++) < count;) status = work(at);
      if (!status.ok()) failed = true;
      batch.done(status);
    });
  return batch.wait();
}

Result<ContentHash> hash_stored(const ImageAccess& image, InodeId inode,
                                const client::FileState& state, const PublishOptions& options) {
  std::vector<std::byte> buffer(
      std::min<std::uint64_t>(kPiece, std::max<std::uint64_t>(state.length, 1)));
  ContentHasher hasher;
  for (std::uint64_t at = 0; at < state.length;) {
    const auto piece = std::min<std::uint64_t>(buffer.size(), state.length - at);
    const std::uint64_t got = SL_TRY(image.io.read_into({image.branch, inode}, state, at,
                                                        MutableByteSpan(buffer).first(piece), 0));
    if (got != piece) return Status(Errc::corrupt, "a stored file is shorter than its length says");
    hasher.update(ByteSpan(buffer).first(piece));
    options.advance(piece);
    at += piece;
  }
  return hasher.finish();
}

ContentHash hash_text(std::string_view text) {
  ContentHasher hasher;
  hasher.update(bytes_of(text));
  return hasher.finish();
}

class Ingest {
 public:
  Ingest(const SourceTree& source, const ImageAccess& image, const PublishOptions& options)
      : source_(source), image_(image), tree_(image), options_(options) {
    directories_[""] = kRootInode;
  }

  Result<Published> run() {
    SL_TRY(make_directories());
    SL_TRY(for_each(source_.files.size(), options_.workers, [this](std::size_t i) {
      const SourceEntry& entry = source_.files[i];
      return (S_ISLNK(entry.mode) ? take_link(entry) : take_file(entry)).with(entry.path);
    }));
    // Last, deepest first: what is made inside a directory changes its time.
    for (auto entry = source_.directories.rbegin(); entry != source_.directories.rend(); ++entry)
      SL_TRY(tree_.finish(directories_.at(entry->path), *entry));
    SL_TRY(image_.io.flush_all(Safety::durable));
    Published done;
    done.files = source_.files.size();
    done.directories = source_.directories.size();
    done.bytes = source_.bytes;
    done.resumed_files = resumed_;
    MutexLock lock(m_);
    done.digest = digest_.finish();
    return done;
  }

 private:
  Status make_directories() {
    for (const SourceEntry& entry : source_.directories) {
      const InodeId parent = directories_.at(split_path(entry.path).first);
      const pb::Attributes made = SL_TRY(tree_.make(parent, entry, ""));
      directories_[entry.path] = InodeId(made.inode());
      MutexLock lock(m_);
      digest_.add(entry.path, entry.mode, 0, {}, entry.xattrs);
    }
    return {};
  }

  Status take_link(const SourceEntry& entry) {
    std::string target(PATH_MAX, '\0');
    const ssize_t n = ::readlink((source_.root / entry.path).c_str(), target.data(), target.size());
    if (n < 0) return system_error("cannot read the link", errno);
    target.resize(static_cast<std::size_t>(n));
    const pb::Attributes made = SL_TRY(tree_.make(parent_of(entry), entry, target));
    SL_TRY(tree_.finish(InodeId(made.inode()), entry));
    note(entry, hash_text(target));
    return {};
  }

  Status take_file(const SourceEntry& entry) {
    UniqueFd fd(::open((source_.root / entry.path).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return system_error("cannot open it", errno);
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    pb::Attributes made = SL_TRY(tree_.make(parent_of(entry), entry, ""));
    const InodeId inode(made.inode());
    if (ImageTree::is_finished(made, entry) && entry.length > 0) {
      ++resumed_;
    } else if (made.length() > 0) {
      SL_TRY(tree_.truncate(inode));
      image_.io.invalidate({image_.branch, inode});
      made = SL_TRY(tree_.attributes(inode));
    }
    const ContentHash written = SL_TRY(copy_in(fd.get(), entry, made));
    made = SL_TRY(tree_.attributes(inode));
    const ContentHash stored =
        SL_TRY(hash_stored(image_, inode, {made.version(), made.length()}, options_));
    if (stored != written || made.length() != entry.length)
      return Status(Errc::corrupt, "what was read back differs from what was written");
    SL_TRY(check_unchanged(fd.get(), entry));
    SL_TRY(tree_.finish(inode, entry));
    note(entry, stored);
    return {};
  }

  /// Writes the file, or only hashes it where an earlier attempt had finished it.
  Result<ContentHash> copy_in(int fd, const SourceEntry& entry, const pb::Attributes& made) {
    const FileKey file{image_.branch, InodeId(made.inode())};
    const client::FileState known{made.version(), made.length()};
    const bool resumed = made.length() > 0;
    std::vector<std::byte> buffer(
        std::min<std::uint64_t>(kPiece, std::max<std::uint64_t>(entry.length, 1)));
    ContentHasher hasher;
    for (std::uint64_t at = 0; at < entry.length;) {
      const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
      if (n < 0) return system_error("cannot read it", errno);
      if (n == 0)
        return Status(Errc::stale, "it became shorter while it was published; publish again");
      const ByteSpan piece = ByteSpan(buffer).first(static_cast<std::size_t>(n));
      hasher.update(piece);
      if (!resumed) {
        client::FileIo::Write write;
        write.file = file;
        write.known = known;
        write.offset = at;
        write.bytes = piece;
        SL_TRY(image_.io.write(write));
      }
      at += piece.size();
      options_.advance(piece.size());
    }
    if (!resumed) SL_TRY(image_.io.flush(file, Safety::accepted));
    return hasher.finish();
  }

  static Status check_unchanged(int fd, const SourceEntry& entry) {
    struct stat st {};
    if (::fstat(fd, &st) != 0) return system_error("cannot read it", errno);
    const WallTime mtime{st.st_mtim.tv_sec, static_cast<std::uint32_t>(st.st_mtim.tv_nsec)};
    if (mtime != entry.mtime || static_cast<std::uint64_t>(st.st_size) != entry.length)
      return Status(Errc::stale,
                    "it changed while it was published; publish again when nobody writes to it");
    return {};
  }

  InodeId parent_of(const SourceEntry& entry) const {
    return directories_.at(split_path(entry.path).first);
  }

  void note(const SourceEntry& entry, const ContentHash& hash) {
    MutexLock lock(m_);
    digest_.add(entry.path, entry.mode, entry.length, hash, entry.xattrs);
  }

  const SourceTree& source_;
  const ImageAccess image_;
  ImageTree tree_;
  const PublishOptions& options_;
  std::unordered_map<std::string, InodeId> directories_;  // complete before the workers start
  std::atomic<std::uint64_t> resumed_{0};  // counted by workers, read after they ended
  Mutex m_;
  TreeDigest digest_ SL_GUARDED_BY(m_);
};

class Reading {
 public:
  Reading(const ImageAccess& image, const PublishOptions& options)
      : image_(image), tree_(image), options_(options) {}

  Result<Published> run() {
    SL_TRY(tree_.walk([this](const std::string& path, const pb::Attributes& attributes) {
      take(path, attributes);
    }));
    SL_TRY(for_each(entries_.size(), options_.workers, [this](std::size_t i) {
      return read_back(entries_[i]).with(entries_[i].path);
    }));
    MutexLock lock(m_);
    found_.digest = digest_.finish();
    return found_;
  }

 private:
  struct Entry {
    std::string path;
    pb::Attributes attributes;
  };

  void take(const std::string& path, const pb::Attributes& attributes) {
    entries_.push_back({path, attributes});
    if (S_ISREG(attributes.mode())) found_.bytes += attributes.length();
    S_ISDIR(attributes.mode()) ? ++found_.directories : ++found_.files;
  }

  Status read_back(const Entry& entry) {
    const pb::Attributes& attributes = entry.attributes;
    const InodeId inode(attributes.inode());
    ContentHash hash{};
    std::uint64_t length = attributes.length();
    if (S_ISLNK(attributes.mode())) {
      hash = hash_text(SL_TRY(tree_.link_target(inode)));
    } else if (S_ISDIR(attributes.mode())) {
      length = 0;
    } else {
      hash = SL_TRY(hash_stored(image_, inode, {attributes.version(), length}, options_));
    }
    const Xattrs xattrs = SL_TRY(tree_.xattrs(attributes));
    MutexLock lock(m_);
    digest_.add(entry.path, attributes.mode(), length, hash, xattrs);
    return {};
  }

  const ImageAccess image_;
  ImageTree tree_;
  const PublishOptions& options_;
  Published found_;
  std::vector<Entry> entries_;
  Mutex m_;
  TreeDigest digest_ SL_GUARDED_BY(m_);
};

}  // namespace

Result<Published> ingest(const SourceTree& tree, const ImageAccess& image,
                         const PublishOptions& options) {
  return Ingest(tree, image, options).run();
}

Result<Published> digest_of(const ImageAccess& image, const PublishOptions& options) {
  return Reading(image, options).run();
}

}  // namespace starlane::dataset
