// Where the committed bytes of files are: chunk maps as the metadata server gave them, each file's
// of one version, so that a new length never meets an old map. Commits of this host are added
// without asking again. Bounded. Any thread.
#pragma once
#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/attachments.h"
#include "client/blocks/interrupts.h"
#include "client/blocks/range_map.h"
#include "client/file_io.h"
#include "common/mutex.h"

namespace starlane::client {

/// What a range of a chunk shows.
struct Segment {
  pb::SliceEntry::Kind kind = pb::SliceEntry::ZERO;
  std::uint32_t layout = 0;
  BranchId owner;
  SliceId slice;
  std::uint32_t slice_length = 0;
  std::uint32_t offset = 0;                        // in the slice
  std::shared_ptr<const std::string> inline_data;  // of the whole slice
  void skip(std::uint64_t bytes) { offset += static_cast<std::uint32_t>(bytes); }
};
using ChunkMap = RangeMap<Segment>;  // by byte of the chunk; what is missing is a hole

class FileMaps {
 public:
  /// max_segments: of all files together, about 150 bytes each.
  FileMaps(MetaService& meta, Attachments& attachments, std::size_t max_segments)
      : meta_(meta), attachments_(attachments), max_segments_(max_segments) {}

  /// Chunks [first_chunk, first_chunk + chunks.size()) of one version of a file.
  struct View {
    std::uint64_t version = 0;
    std::uint64_t length = 0;
    std::uint32_t first_chunk = 0;
    std::vector<std::shared_ptr<const ChunkMap>> chunks;
  };
  /// The chunks that [begin, end) touches, as of `known` or later. Waits while servers are away.
  Result<View> get(FileKey file, const FileState& known, std::uint64_t begin, std::uint64_t end,
                   const Interrupts::Scope& scope) SL_EXCLUDES(m_);

  void invalidate(FileKey file) SL_EXCLUDES(m_);
  /// Our own commit of `slices` made `attributes` out of `previous_version`.
  void committed(FileKey file, std::uint64_t previous_version, const pb::Attributes& attributes,
                 const std::vector<pb::NewSlice>& slices) SL_EXCLUDES(m_);

 private:
  using Chunks = std::map<std::uint32_t, std::shared_ptr<const ChunkMap>>;
  using Recent = std::list<FileKey>;  // most recent first
  struct Entry {
    std::uint64_t version = 0, length = 0;
    bool frozen = false;
    std::deque<std::uint64_t>
        older;  // versions known to have come before: whoever still knows one is served
    Chunks chunks;
    std::size_t segments = 0;
    Recent::iterator recent;
  };
  struct Fetched {
    pb::FileMapReply reply;
    Chunks chunks;
  };

  bool serves(const Entry& entry, std::uint64_t version) const;
  bool view_of(const Entry& entry, std::uint32_t first, std::uint32_t end, View& view) const;
  Result<Fetched> fetch(FileKey file, std::uint32_t first, std::uint32_t end,
                        const Interrupts::Scope& scope);
  void install(FileKey file, std::uint64_t known_version, Fetched& fetched) SL_REQUIRES(m_);
  void drop(std::unordered_map<FileKey, Entry>::iterator at) SL_REQUIRES(m_);
  std::uint64_t& changes_of(FileKey file) SL_REQUIRES(m_) {
    return changes_[std::hash<FileKey>()(file) % changes_.size()];
  }

  MetaService& meta_;
  Attachments& attachments_;
  const std::size_t max_segments_;
  Mutex m_;
  std::unordered_map<FileKey, Entry> files_ SL_GUARDED_BY(m_);
  Recent recent_ SL_GUARDED_BY(m_);
  std::size_t segments_ SL_GUARDED_BY(m_) = 0;
  // Counts invalidations and commits: a map that was asked for before one of them is not kept.
  std::array<std::uint64_t, 256> changes_ SL_GUARDED_BY(m_){};
};

/// Runs `call` under the branch's attachment until its outcome is no passing one; when the server
/// has ended the attachment, under the next.
Status with_attachment(Attachments& attachments, BranchId branch, const Interrupts::Scope& scope,
                       std::string_view what, const std::function<Status(const Attachment&)>& call);

}  // namespace starlane::client
