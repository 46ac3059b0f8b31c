#include "client/read/file_maps.h"

#include <algorithm>

#include "client/blocks/patience.h"

namespace starlane::client {
namespace {

constexpr std::uint32_t kChunksPerCall = 64;
constexpr std::size_t kOlderVersions = 4;

/// Puts an entry over those before it. protocol: it names bytes that cannot be.
Status add_entry(const pb::SliceEntry& entry, ChunkMap& chunk) {
  if (!pb::SliceEntry::Kind_IsValid(entry.kind()))
    return Status(Errc::protocol,
                  "slice " + std::to_string(entry.slice()) + " is of no known kind");
  const std::uint64_t end = std::uint64_t{entry.position()} + entry.length();
  const bool stored =
      entry.kind() == pb::SliceEntry::DATA || entry.kind() == pb::SliceEntry::ORIGIN;
  const std::uint64_t slice_length = stored ? entry.slice_length() : entry.inline_data().size();
  const bool within = entry.kind() == pb::SliceEntry::ZERO ||
                      std::uint64_t{entry.offset()} + entry.length() <= slice_length;
  if (end > kChunkSize || !within) {
    return Status(Errc::protocol, "slice " + std::to_string(entry.slice()) +
                                      " is said to have bytes beyond its end");
  }
  Segment segment{entry.kind(),
                  entry.layout(),
                  BranchId(entry.owner()),
                  SliceId(entry.slice()),
                  entry.slice_length(),
                  entry.offset(),
                  nullptr};
  if (entry.kind() == pb::SliceEntry::INLINE) {
    segment.inline_data = std::make_shared<const std::string>(entry.inline_data());
  }
  chunk.assign(entry.position(), end, std::move(segment));
  return {};
}

Result<std::shared_ptr<const ChunkMap>> chunk_of(const pb::Chunk& message) {
  auto chunk = std::make_shared<ChunkMap>();
  for (const pb::SliceEntry& entry : message.entries()) SL_TRY(add_entry(entry, *chunk));
  return std::shared_ptr<const ChunkMap>(std::move(chunk));
}

const std::shared_ptr<const ChunkMap>& empty_chunk() {
  static const auto empty = std::make_shared<const ChunkMap>();
  return empty;
}

std::uint32_t chunk_at(std::uint64_t offset) {
  return static_cast<std::uint32_t>(offset / kChunkSize);
}

}  // namespace

Status with_attachment(Attachments& attachments, BranchId branch, const Interrupts::Scope& scope,
                       std::string_view what,
                       const std::function<Status(const Attachment&)>& call) {
  Patience patience(scope, what);
  for (;;) {
    const Attachment attachment = SL_TRY(attachments.attachment(branch, scope.unique()));
    Status status = call(attachment);
    const bool ended = status.code() == Errc::fenced || status.code() == Errc::stale;
    if (status.code() == Errc::fenced) attachments.fenced(branch, attachment);
    if (!ended && !is_passing(status.code())) return status;
    SL_TRY(patience.wait(status));
  }
}

Result<FileMaps::View> FileMaps::get(FileKey file, const FileState& known, std::uint64_t begin,
                                     std::uint64_t end, const Interrupts::Scope& scope) {
  const std::uint32_t first = chunk_at(begin);
  const std::uint32_t last = std::max(first + 1, chunk_at(end + kChunkSize - 1));
  View view;
  std::uint64_t changes = 0;
  {
    MutexLock lock(m_);
    const auto at = files_.find(file);
    if (at != files_.end()) {
      recent_.splice(recent_.begin(), recent_, at->second.recent);
      if (serves(at->second, known.version) && view_of(at->second, first, last, view)) return view;
    }
    changes = changes_of(file);
  }
  Fetched fetched = SL_TRY(fetch(file, first, last, scope));
  view = {fetched.reply.version(), fetched.reply.length(), first, {}};
  for (std::uint32_t chunk = first; chunk < last; ++chunk)
    view.chunks.push_back(fetched.chunks[chunk]);
  MutexLock lock(m_);
  if (changes == changes_of(file)) install(file, known.version, fetched);
  return view;
}

bool FileMaps::serves(const Entry& entry, std::uint64_t version) const {
  return entry.frozen || entry.version == version ||
         std::ranges::find(entry.older, version) != entry.older.end();
}

bool FileMaps::view_of(const Entry& entry, std::uint32_t first, std::uint32_t end,
                       View& view) const {
  view = {entry.version, entry.length, first, {}};
  for (std::uint32_t chunk = first; chunk < end; ++chunk) {
    const auto at = entry.chunks.find(chunk);
    if (at == entry.chunks.end() && std::uint64_t{chunk} * kChunkSize < entry.length) return false;
    view.chunks.push_back(at == entry.chunks.end() ? empty_chunk() : at->second);
  }
  return true;
}

Result<FileMaps::Fetched> FileMaps::fetch(FileKey file, std::uint32_t first, std::uint32_t end,
                                          const Interrupts::Scope& scope) {
  Fetched fetched;
  const std::uint32_t count = std::max(end - first, kChunksPerCall);
  Status status = with_attachment(attachments_, file.branch, scope, "file map",
                                  [&](const Attachment& attachment) {
                                    pb::FileMapRequest request;
                                    request.mutable_on()->set_session(attachment.session.value);
                                    request.mutable_on()->set_branch(file.branch.value);
                                    request.mutable_on()->set_attachment_epoch(attachment.epoch);
                                    request.set_inode(file.inode.value);
                                    request.set_first_chunk(first);
                                    request.set_chunks(count);
                                    Call call;
                                    call.session = attachment.session;
                                    call.attachment_epoch = attachment.epoch;
                                    call.deadline = try_deadline(0);
                                    fetched.reply.Clear();
                                    return meta_.file_map(call, request, &fetched.reply);
                                  });
  // not_found means a block to those who read through this: the file itself is told apart.
  if (status.code() == Errc::not_found) return Status(Errc::stale_handle, "the file is gone");
  if (!status.ok()) return status;
  for (std::uint32_t chunk = first; chunk < first + count; ++chunk)
    fetched.chunks[chunk] = empty_chunk();
  for (const pb::Chunk& chunk : fetched.reply.chunks()) {
    fetched.chunks[chunk.index()] = SL_TRY(chunk_of(chunk));
  }
  return fetched;
}

void FileMaps::install(FileKey file, std::uint64_t known_version, Fetched& fetched) {
  const pb::FileMapReply& reply = fetched.reply;
  const auto same = files_.find(file);
  if (same != files_.end() && same->second.version != reply.version()) drop(same);
  const auto [at, added] = files_.try_emplace(file);
  Entry& entry = at->second;
  if (added) entry.recent = recent_.insert(recent_.begin(), file);
  entry.version = reply.version();
  entry.length = reply.length();
  entry.frozen = reply.frozen();
  if (known_version != 0 && !serves(entry, known_version)) entry.older.push_back(known_version);
  if (entry.older.size() > kOlderVersions) entry.older.pop_front();
  for (auto& [index, chunk] : fetched.chunks) {
    const bool beyond = std::uint64_t{index} * kChunkSize >= entry.length;
    if (beyond || !entry.chunks.emplace(index, chunk).second) continue;
    entry.segments += chunk->ranges().size() + 1;
    segments_ += chunk->ranges().size() + 1;
  }
  while (segments_ > max_segments_ && recent_.back() != file) drop(files_.find(recent_.back()));
}

void FileMaps::drop(std::unordered_map<FileKey, Entry>::iterator at) {
  segments_ -= at->second.segments;
  recent_.erase(at->second.recent);
  files_.erase(at);
}

void FileMaps::invalidate(FileKey file) {
  MutexLock lock(m_);
  ++changes_of(file);
  const auto at = files_.find(file);
  if (at != files_.end()) drop(at);
}

void FileMaps::committed(FileKey file, std::uint64_t previous_version,
                         const pb::Attributes& attributes,
                         const std::vector<pb::NewSlice>& slices) {
  MutexLock lock(m_);
  ++changes_of(file);
  const auto at = files_.find(file);
  if (at == files_.end()) return;
  Entry& entry = at->second;
  if (entry.version != previous_version) return drop(at);
  for (const pb::NewSlice& slice : slices) {
    const auto known = entry.chunks.find(slice.chunk());
    const bool hole = std::uint64_t{slice.chunk()} * kChunkSize >= entry.length;
    if (known == entry.chunks.end() && !hole) continue;  // it will be asked for
    auto chunk =
        std::make_shared<ChunkMap>(known == entry.chunks.end() ? *empty_chunk() : *known->second);
    const std::size_t before = known == entry.chunks.end() ? 0 : chunk->ranges().size() + 1;
    if (!add_entry(slice.entry(), *chunk).ok()) return drop(at);
    entry.segments += chunk->ranges().size() + 1 - before;
    segments_ += chunk->ranges().size() + 1 - before;
    entry.chunks[slice.chunk()] = std::move(chunk);
  }
  entry.older.push_back(previous_version);
  if (entry.older.size() > kOlderVersions) entry.older.pop_front();
  entry.version = attributes.version();
  entry.length = attributes.length();
}

}  // namespace starlane::client
