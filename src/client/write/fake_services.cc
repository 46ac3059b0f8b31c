#include "client/write/fake_services.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace starlane::client {
namespace {

FileKey key_of(const pb::On& on, std::uint64_t inode) {
  return {BranchId(on.branch()), InodeId(inode)};
}

Status passing_fault(Rng& rng) {
  return rng.one_in(2) ? Status(Errc::unavailable, "fault: the peer is away")
                       : Status(Errc::busy, "fault: busy");
}

}  // namespace

// ---- Blocks ----

Status FakeBlocks::fault_before() {
  if (!all_.ok()) return all_;
  if (faults_.one_in != 0 && rng_.one_in(faults_.one_in)) return passing_fault(rng_);
  return {};
}

bool FakeBlocks::fault_after() { return faults_.one_in != 0 && rng_.one_in(faults_.one_in); }

Status FakeBlocks::put(const Call&, const PutBlock& request, BulkSource& data) {
  Stored stored;
  stored.bytes.resize(data.size());
  SL_TRY(data.read(stored.bytes));
  stored.sums = request.unit_checksums;
  MutexLock lock(m_);
  SL_TRY(fault_before());
  if (!puts_.ok()) return puts_;
  if (faults_.corrupt_one_in != 0 && rng_.one_in(faults_.corrupt_one_in)) {
    return Status(Errc::corrupt, "fault: damaged on the way");
  }
  if (stored.bytes.empty() || stored.bytes.size() > kBlockSize)
    return Status(Errc::invalid, "block size");
  if (checksum_units(stored.bytes) != stored.sums) return Status(Errc::corrupt, "checksums");
  if (removed_.contains({request.block.owner, request.block.slice}))
    return Status(Errc::fenced, "removed slice");
  const auto [at, added] = stored_.try_emplace({request.target, request.block}, std::move(stored));
  if (!added && at->second.sums != request.unit_checksums)
    return Status(Errc::exists, "other content");
  if (fault_after()) return Status(Errc::timeout, "fault: the answer is lost");
  return {};
}

Result<GetBlockReply> FakeBlocks::get(const Call&, const GetBlock& request, BulkSink& out) {
  if (before_get_) before_get_();
  MutexLock lock(m_);
  SL_TRY(fault_before());
  const auto at = stored_.find({request.target, request.block});
  if (at == stored_.end()) return Status(Errc::not_found, "no such block");
  if (at->second.damaged) return Status(Errc::corrupt, "bad copy");
  const auto& bytes = at->second.bytes;
  if (request.length == 0 || std::uint64_t{request.offset} + request.length > bytes.size()) {
    return Status(Errc::invalid, "range outside the block");
  }
  std::vector<std::byte> sent(bytes.begin() + request.offset,
                              bytes.begin() + request.offset + request.length);
  GetBlockReply reply;
  for (std::uint64_t from = request.offset, end = from + request.length; from < end;) {
    const std::uint64_t to = std::min(end, round_down(from, kChecksumUnit) + kChecksumUnit);
    reply.checksums.push_back(crc32c(ByteSpan(sent).subspan(from - request.offset, to - from)));
    from = to;
  }
  if (faults_.corrupt_one_in != 0 && rng_.one_in(faults_.corrupt_one_in)) {
    sent[rng_.below(sent.size())] ^= std::byte{1};
  }
  SL_TRY(out.write(sent));
  got_bytes_ += sent.size();
  return reply;
}

Status FakeBlocks::sync(const Call&, TargetId target) {
  MutexLock lock(m_);
  SL_TRY(fault_before());
  for (auto& [key, stored] : stored_) {
    if (key.first == target) stored.synced = true;
  }
  return {};
}

Status FakeBlocks::remove_slice(const Call&, TargetId, BranchId owner, SliceId slice) {
  MutexLock lock(m_);
  removed_.insert({owner, slice});
  std::erase_if(stored_, [&](const auto& entry) {
    return entry.first.second.owner == owner && entry.first.second.slice == slice;
  });
  return {};
}

Result<BlockListing> FakeBlocks::list(const Call&, TargetId, const std::string&, std::uint32_t) {
  return Status(Errc::not_implemented, "list");
}
Result<BlockListing> FakeBlocks::verify(const Call&, TargetId, const std::string&, std::uint32_t) {
  return Status(Errc::not_implemented, "verify");
}
Result<std::vector<TargetInfo>> FakeBlocks::targets(const Call&) {
  return Status(Errc::not_implemented, "targets");
}

void FakeBlocks::set_faults(Faults faults) {
  MutexLock lock(m_);
  faults_ = faults;
}
void FakeBlocks::fail_all(Status status) {
  MutexLock lock(m_);
  all_ = std::move(status);
}
void FakeBlocks::fail_puts(Status status) {
  MutexLock lock(m_);
  puts_ = std::move(status);
}

bool FakeBlocks::has(BranchId owner, SliceId slice, std::uint32_t stored_bytes, bool synced) {
  MutexLock lock(m_);
  std::map<std::uint32_t, std::uint64_t> lengths;
  for (const auto& [key, stored] : stored_) {
    const BlockId& block = key.second;
    if (block.owner != owner || block.slice != slice || (synced && !stored.synced)) continue;
    lengths[block.index] = stored.bytes.size();
  }
  std::uint64_t found = 0;
  for (const auto& [index, length] : lengths) found += index * kBlockSize == found ? length : 0;
  return found == stored_bytes;
}

void FakeBlocks::lose(BranchId owner, SliceId slice) {
  MutexLock lock(m_);
  std::erase_if(stored_, [&](const auto& entry) {
    return entry.first.second.owner == owner && entry.first.second.slice == slice;
  });
}

void FakeBlocks::damage(TargetId target) {
  MutexLock lock(m_);
  for (auto& [key, stored] : stored_) stored.damaged = stored.damaged || key.first == target;
}

std::uint64_t FakeBlocks::got_bytes() {
  MutexLock lock(m_);
  return got_bytes_;
}
std::size_t FakeBlocks::blocks() {
  MutexLock lock(m_);
  return stored_.size();
}

// ---- Metadata ----

Status FakeMeta::fault_before() {
  if (faults_.one_in != 0 && rng_.one_in(faults_.one_in)) return passing_fault(rng_);
  return {};
}
bool FakeMeta::fault_after() { return faults_.one_in != 0 && rng_.one_in(faults_.one_in); }

Status FakeMeta::cluster_map(const Call&, const pb::Empty&, pb::ClusterMap* reply) {
  MutexLock lock(m_);
  SL_TRY(fault_before());
  reply->set_epoch(map_epoch_);
  for (const pb::Target& target : targets_) *reply->add_targets() = target;
  return {};
}

Status FakeMeta::file_map(const Call&, const pb::FileMapRequest& request, pb::FileMapReply* reply) {
  MutexLock lock(m_);
  ++map_calls_;
  SL_TRY(fault_before());
  const auto at = files_.find(key_of(request.on(), request.inode()));
  if (at == files_.end()) return Status(Errc::not_found, "no such file");
  reply->set_version(at->second.version);
  reply->set_length(at->second.length);
  for (const auto& [index, entries] : at->second.chunks) {
    if (index < request.first_chunk() || index >= request.first_chunk() + request.chunks())
      continue;
    pb::Chunk* const chunk = reply->add_chunks();
    chunk->set_index(index);
    for (const pb::SliceEntry& entry : entries) *chunk->add_entries() = entry;
  }
  return {};
}

Status FakeMeta::reserve_slices(const Call&, const pb::ReserveSlicesRequest& request,
                                pb::ReserveSlicesReply* reply) {
  MutexLock lock(m_);
  SL_TRY(fault_before());
  if (fenced_.contains(SessionId(request.session()))) return Status(Errc::fenced, "session ended");
  if (request.count() == 0 || request.count() > 64) return Status(Errc::invalid, "count");
  reply->set_batch(next_slice_);
  reply->set_first(next_slice_);
  reply->set_count(request.count());
  reserved_[next_slice_] = 0;
  next_slice_ += request.count();
  if (fault_after()) return Status(Errc::timeout, "fault: the answer is lost");
  return {};
}

Status FakeMeta::commit(const Call&, const pb::CommitRequest& request, pb::CommitReply* reply) {
  if (before_commit_) before_commit_();
  MutexLock lock(m_);
  SL_TRY(fault_before());
  if (fenced_.contains(SessionId(request.on().session())))
    return Status(Errc::fenced, "session ended");
  SL_TRY(check_stored(request));
  SL_TRY(take_room(request));
  SL_TRY(apply(request, reply));
  if (fault_after()) return Status(Errc::timeout, "fault: the answer is lost");
  return {};
}

Status FakeMeta::take_room(const pb::CommitRequest& request) {
  const File& file = files_[key_of(request.on(), request.inode())];
  const std::uint64_t bytes = request.length() - std::min(request.length(), file.length);
  if (!limited_ || bytes == 0) return {};
  if (bytes > room_ + escrow_) return Status(Errc::quota, "the volume is full");
  const std::uint64_t set_aside = std::min(escrow_, bytes);
  escrow_ -= set_aside;
  room_ -= bytes - set_aside;
  return {};
}

Status FakeMeta::escrow(const Call&, const pb::EscrowRequest& request, pb::EscrowReply* reply) {
  if (before_escrow_) before_escrow_();
  MutexLock lock(m_);
  SL_TRY(fault_before());
  const std::uint64_t back = std::min(escrow_, request.returned());
  escrow_ -= back;
  room_ += back;
  const std::uint64_t more =
      std::min(room_, request.wanted() - std::min(escrow_, request.wanted()));
  escrow_ += more;
  room_ -= more;
  reply->set_limited(limited_);
  reply->set_escrow(escrow_);
  return {};
}

void FakeMeta::set_room(std::uint64_t bytes) {
  MutexLock lock(m_);
  limited_ = true;
  room_ = bytes;
}

/// No commit may name what is not stored; a durable one what is not synced.
Status FakeMeta::check_stored(const pb::CommitRequest& request) {
  for (const pb::NewSlice& slice : request.slices()) {
    const pb::SliceEntry& entry = slice.entry();
    if (entry.kind() == pb::SliceEntry::INLINE) {
      if (entry.inline_data().size() == entry.slice_length() &&
          entry.slice_length() <= kInlineLimit)
        continue;
      return Status(Errc::invalid, "inline slice");
    }
    if (entry.position() + entry.length() > kChunkSize || entry.length() == 0)
      return Status(Errc::invalid, "entry");
    if (entry.offset() + entry.length() > entry.slice_length())
      return Status(Errc::invalid, "beyond its slice");
    if (!blocks_.has(BranchId(entry.owner()), SliceId(entry.slice()), entry.slice_length(),
                     request.durable())) {
      return Status(Errc::invalid,
                    "slice " + std::to_string(entry.slice()) + " is committed but not stored");
    }
  }
  return {};
}

Status FakeMeta::apply(const pb::CommitRequest& request, pb::CommitReply* reply) {
  const auto at = files_.find(key_of(request.on(), request.inode()));
  if (at == files_.end()) return Status(Errc::not_found, "no such file");
  File& file = at->second;
  std::size_t done = 0;
  for (const pb::NewSlice& slice : request.slices()) {
    const auto batch = reserved_.find(slice.batch());
    const std::uint64_t bit = slice.entry().slice() - slice.batch();
    if (batch == reserved_.end() || bit >= 64) return Status(Errc::invalid, "not reserved");
    done += batch->second >> bit & 1;
  }
  const auto slices = static_cast<std::size_t>(request.slices_size());
  if (done != 0 && done != slices)
    return Status(Errc::invalid, "some slices are committed already");
  reply->set_previous_version(file.version);
  if (done == 0) {
    ++commits_;
    ++file.version;
    const std::uint64_t base = request.append() ? file.length : 0;
    reply->set_appended_at(base);
    for (const pb::NewSlice& slice : request.slices()) {
      reserved_[slice.batch()] |= std::uint64_t{1} << (slice.entry().slice() - slice.batch());
      const std::uint64_t begin = base + slice.chunk() * kChunkSize + slice.entry().position();
      pb::SliceEntry entry = slice.entry();
      entry.set_position(static_cast<std::uint32_t>(begin % kChunkSize));
      file.chunks[static_cast<std::uint32_t>(begin / kChunkSize)].push_back(entry);
      file.length = std::max(file.length, begin + entry.length());
    }
    file.length = std::max(file.length, request.append() ? 0 : request.length());
    file.durable = false;
    file.set.MergeFrom(request.set());
  }
  if (request.durable()) {
    for (auto& [key, other] : files_) other.durable = true;
  }
  reply->mutable_attributes()->set_inode(request.inode());
  reply->mutable_attributes()->set_version(file.version);
  reply->mutable_attributes()->set_length(file.length);
  return {};
}

Status FakeMeta::set_attributes(const Call&, const pb::SetAttributesRequest& request,
                                pb::Attributes*) {
  MutexLock lock(m_);
  SL_TRY(fault_before());
  if (fenced_.contains(SessionId(request.on().session())))
    return Status(Errc::fenced, "session ended");
  files_[key_of(request.on(), request.inode())].set.MergeFrom(request);
  ++sets_;
  return {};
}

pb::SetAttributesRequest FakeMeta::set(FileKey file) {
  MutexLock lock(m_);
  return files_.at(file).set;
}
std::uint64_t FakeMeta::sets() {
  MutexLock lock(m_);
  return sets_;
}

Status FakeMeta::flush(const Call&, const pb::FlushRequest&, pb::Empty*) {
  MutexLock lock(m_);
  SL_TRY(fault_before());
  for (auto& [key, file] : files_) file.durable = true;
  return {};
}

void FakeMeta::set_faults(Faults faults) {
  MutexLock lock(m_);
  faults_ = faults;
}
void FakeMeta::set_targets(std::vector<pb::Target> targets) {
  MutexLock lock(m_);
  targets_ = std::move(targets);
  ++map_epoch_;
}
void FakeMeta::fence(SessionId session) {
  MutexLock lock(m_);
  fenced_.insert(session);
}

FileState FakeMeta::create(FileKey file) {
  MutexLock lock(m_);
  files_[file] = {};
  return {1, 0};
}

FileState FakeMeta::truncate(FileKey key, std::uint64_t length) {
  MutexLock lock(m_);
  File& file = files_.at(key);
  for (auto& [index, entries] : file.chunks) {
    const std::uint64_t base = index * kChunkSize;
    for (pb::SliceEntry& entry : entries) {
      const std::uint64_t begin = base + entry.position();
      if (begin + entry.length() <= length) continue;
      entry.set_length(static_cast<std::uint32_t>(begin < length ? length - begin : 0));
    }
    std::erase_if(entries, [](const pb::SliceEntry& entry) { return entry.length() == 0; });
  }
  file.length = length;
  return {++file.version, length};
}

FileState FakeMeta::remote_commit(FileKey key, const pb::SliceEntry& entry) {
  MutexLock lock(m_);
  File& file = files_.at(key);
  file.chunks[0].push_back(entry);
  file.length = std::max<std::uint64_t>(file.length, entry.position() + entry.length());
  return {++file.version, file.length};
}

void FakeMeta::merge(FileKey file, const pb::SliceEntry& entry) {
  MutexLock lock(m_);
  files_.at(file).chunks[0] = {entry};
}

FileState FakeMeta::state(FileKey file) {
  MutexLock lock(m_);
  return {files_.at(file).version, files_.at(file).length};
}
std::vector<pb::SliceEntry> FakeMeta::entries(FileKey file, std::uint32_t chunk) {
  MutexLock lock(m_);
  return files_.at(file).chunks[chunk];
}
std::uint64_t FakeMeta::commits() {
  MutexLock lock(m_);
  return commits_;
}
std::uint64_t FakeMeta::map_calls() {
  MutexLock lock(m_);
  return map_calls_;
}
bool FakeMeta::durable(FileKey file) {
  MutexLock lock(m_);
  return files_.at(file).durable;
}

// ---- Attachments ----

Result<Attachment> FakeAttachments::attachment(BranchId branch, std::uint64_t) {
  MutexLock lock(m_);
  Attachment& now = now_[branch];
  if (!now.session) now = {SessionId(100 + branch.value), 1, false};
  return now;
}

void FakeAttachments::fenced(BranchId branch, const Attachment& under) {
  MutexLock lock(m_);
  if (now_[branch] == under)
    now_[branch] = {SessionId(under.session.value + 1000), under.epoch + 1, false};
}

}  // namespace starlane::client
