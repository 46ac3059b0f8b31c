// Opening, reading, writing and closing.
#include <sys/stat.h>

#include <cstring>

#include "capi/file.h"

namespace starlane::capi {
namespace {

constexpr std::uint64_t kStraight = 128_KiB;  // from here on past the cache
constexpr std::uint64_t kWritePiece = 4_MiB;
constexpr int kKnownFlags = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC;
constexpr int kOpenTries = 3;

struct Wanted {
  std::string_view path;
  int flags = 0;
  std::uint32_t mode = 0;
};

/// What is there by that name; not_found: nothing.
Status open_found(sl_client& client, const Calls::Scope& scope, const Wanted& wanted,
                  sl_file* file) {
  Found found = SL_TRY(walk(client, scope, wanted.path));
  if ((wanted.flags & O_EXCL) != 0 && (wanted.flags & O_CREAT) != 0)
    return Status(Errc::exists, std::string(wanted.path) + " is there already");
  if (S_ISDIR(found.stat.mode))
    return Status(Errc::is_directory, std::string(wanted.path) + " is a directory");
  if (!S_ISREG(found.stat.mode))
    return Status(Errc::invalid, std::string(wanted.path) + " is no regular file");
  const int flags = wanted.flags & (O_ACCMODE | O_TRUNC | O_APPEND);
  file->handle = SL_TRY(client.embedded->vfs().open(scope.caller(), found.node.node(),
                                                    static_cast<std::uint32_t>(flags)))
                     .handle;
  file->node = std::move(found.node);
  return {};
}

Status create(sl_client& client, const Calls::Scope& scope, const Wanted& wanted, sl_file* file) {
  const Place place = SL_TRY(place_of(client, scope, wanted.path));
  client::Vfs& vfs = client.embedded->vfs();
  const auto created = SL_TRY(vfs.create(
      scope.caller(), place.directory.node.node(), place.name, S_IFREG | (wanted.mode & 07777),
      static_cast<std::uint32_t>(wanted.flags & (O_ACCMODE | O_APPEND | O_CREAT | O_EXCL))));
  file->handle = created.open.handle;
  file->node = Remembered(vfs, created.entry.node);
  return {};
}

/// Names may be made and moved by others between two looks at them.
Status open(sl_client& client, const Calls::Scope& scope, const Wanted& wanted, sl_file* file) {
  Status status;
  for (int tries = 0; tries < kOpenTries; ++tries) {
    status = open_found(client, scope, wanted, file);
    if (status.code() == Errc::not_found && (wanted.flags & O_CREAT) != 0)
      status = create(client, scope, wanted, file);
    const bool again = status.code() == Errc::stale_handle ||
                       (status.code() == Errc::exists && (wanted.flags & O_EXCL) == 0);
    if (!again) break;
  }
  return status;
}

Status check_range(const void* memory, std::uint64_t length, std::uint64_t offset) {
  constexpr auto kMost = static_cast<std::uint64_t>(INT64_MAX);
  if (memory == nullptr && length != 0)
    return Status(Errc::invalid, "the memory is a null pointer");
  if (offset > kMost || length > kMost - offset)
    return Status(Errc::invalid, "offset and length go beyond 2^63 - 1");
  return {};
}

Result<std::uint64_t> read_cached(const sl_file& file, const Calls::Scope& scope,
                                  std::uint64_t offset, MutableByteSpan to) {
  const auto pieces = SL_TRY(file.client->embedded->vfs().read(
      scope.caller(), file.handle, offset, static_cast<std::uint32_t>(to.size())));
  std::size_t done = 0;
  for (const client::Piece& piece : pieces) {
    const std::size_t n = std::min(piece.bytes.size(), to.size() - done);
    std::memcpy(to.data() + done, piece.bytes.data(), n);
    done += n;
  }
  return std::uint64_t{done};
}

/// An entry point that answers a count.
template <typename Work>
std::int64_t counted(sl_file* file, Work work) noexcept {
  std::int64_t count = 0;
  const int status = with_client(file != nullptr ? file->client : nullptr,
                                 [&](const Calls::Scope& scope) -> Status {
                                   count = static_cast<std::int64_t>(SL_TRY(work(scope)));
                                   return {};
                                 });
  return status < 0 ? status : count;
}

}  // namespace

Result<std::uint64_t> read(const sl_file& file, const Calls::Scope& scope, std::uint64_t offset,
                           MutableByteSpan to) {
  if (!file.reads()) return {Errc::bad_handle, "the file is not open for reading"};
  SL_TRY(check_range(to.data(), to.size(), offset));
  if (to.empty()) return std::uint64_t{0};
  if (to.size() < kStraight) return read_cached(file, scope, offset, to);
  return file.client->embedded->vfs().read_into(scope.caller(), file.handle, offset, to);
}

Result<std::uint64_t> write(const sl_file& file, const Calls::Scope& scope, std::uint64_t offset,
                            ByteSpan from) {
  if (!file.writes()) return {Errc::bad_handle, "the file is not open for writing"};
  SL_TRY(check_range(from.data(), from.size(), offset));
  client::WriteOptions options;
  options.append = (file.flags & O_APPEND) != 0;
  for (std::uint64_t done = 0; done < from.size();) {
    const std::uint64_t at = offset + done;  // to the end of a block: a whole one goes out at once
    const std::uint64_t most = kWritePiece - at % kWritePiece;
    const ByteSpan piece = from.subspan(done, std::min<std::uint64_t>(most, from.size() - done));
    done +=
        SL_TRY(file.client->embedded->vfs().write(scope.caller(), file.handle, at, piece, options));
  }
  return std::uint64_t{from.size()};
}

}  // namespace starlane::capi

using namespace starlane;
using namespace starlane::capi;

extern "C" {

int sl_open(sl_client* client, const char* path, int flags, uint32_t mode, sl_file** file) {
  return with_client(client, [&](const Calls::Scope& scope) -> Status {
    if (path == nullptr || file == nullptr)
      return Status(Errc::invalid, "sl_open needs a path and a place for the file");
    if ((flags & ~kKnownFlags) != 0 || (flags & O_ACCMODE) == O_ACCMODE)
      return Status(Errc::invalid,
                    "flags are O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, "
                    "O_TRUNC or O_APPEND");
    auto opened = std::make_unique<sl_file>();
    opened->client = client;
    opened->flags = flags;
    SL_TRY(capi::open(*client, scope, {path, flags, mode}, opened.get()));
    client->opened.fetch_add(1);
    *file = opened.release();
    return {};
  });
}

int sl_close(sl_file* file) {
  if (file == nullptr || in_child(*file->client)) return 0;
  if (file->in_batches.load() > 0)
    return guarded([] { return fail(EBUSY, "a batch that is under way uses the file"); });
  sl_client* client = file->client;
  const int flushed = with_client(client, [&](const Calls::Scope& scope) {
    const std::unique_ptr<sl_file> owned(file);
    client::Vfs& vfs = client->embedded->vfs();
    Status status = vfs.flush(scope.caller(), owned->handle, /*owner=*/0);
    vfs.release(scope.caller(), owned->handle);
    return status;
  });
  client->opened.fetch_sub(1);
  return flushed;
}

int64_t sl_pread(sl_file* file, void* to, uint64_t length, uint64_t offset) {
  return counted(file, [&](const Calls::Scope& scope) {
    return capi::read(*file, scope, offset, {static_cast<std::byte*>(to), length});
  });
}

int64_t sl_pwrite(sl_file* file, const void* from, uint64_t length, uint64_t offset) {
  return counted(file, [&](const Calls::Scope& scope) {
    return capi::write(*file, scope, offset, {static_cast<const std::byte*>(from), length});
  });
}

int sl_fsync(sl_file* file) {
  return with_client(file != nullptr ? file->client : nullptr, [&](const Calls::Scope& scope) {
    return file->client->embedded->vfs().fsync(scope.caller(), file->handle, /*data_only=*/false);
  });
}

int sl_truncate(sl_file* file, uint64_t length) {
  return with_client(file != nullptr ? file->client : nullptr,
                     [&](const Calls::Scope& scope) -> Status {
                       if (!file->writes())
                         return Status(Errc::bad_handle, "the file is not open for writing");
                       client::SetStat change;
                       change.length = length;
                       change.handle = file->handle;
                       return file->client->embedded->vfs()
                           .set_attributes(scope.caller(), file->node.node(), change)
                           .status();
                     });
}

int sl_fstat(sl_file* file, sl_stat* stat) {
  return with_client(file != nullptr ? file->client : nullptr,
                     [&](const Calls::Scope& scope) -> Status {
                       const auto found = SL_TRY(file->client->embedded->vfs().get_attributes(
                           scope.caller(), file->node.node(), file->handle));
                       return fill(found.stat, stat);
                     });
}

}  // extern "C"
