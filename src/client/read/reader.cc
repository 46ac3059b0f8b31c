#include "client/read/reader.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/batch.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kZeroBytes = 1_MiB;

/// Pages that were never written: the kernel's one zero page, many times.
ByteSpan zeros() {
  static const void* const map =
      ::mmap(nullptr, kZeroBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SL_CHECK(map != MAP_FAILED);
  return {static_cast<const std::byte*>(map), kZeroBytes};
}

Status put(const std::vector<Piece>& pieces, const Landing& out) {
  std::uint64_t at = 0;
  for (const Piece& piece : pieces) {
    SL_TRY(out.put(at, piece.bytes));
    at += piece.bytes.size();
  }
  return {};
}

}  // namespace

void append_zeros(std::uint64_t length, std::vector<Piece>& pieces) {
  while (length != 0) {
    const std::uint64_t n = std::min(length, kZeroBytes);
    pieces.push_back({zeros().first(n), nullptr});
    length -= n;
  }
}

Reader::Reader(MetaService& meta, BlockClient& blocks, Attachments& attachments,
               Interrupts& interrupts, const Options& options)
    : blocks_(blocks),
      attachments_(attachments),
      interrupts_(interrupts),
      meters_(options.meters),
      max_window_(
          std::min(options.max_window_bytes, std::max(options.cache_bytes / 8, kBlockSize))),
      maps_(meta, attachments, options.max_map_segments),
      cache_(options.cache_bytes),
      pool_({"sl-fetch", options.threads, 64}) {}

Result<Reader::Look> Reader::look(FileKey file, const FileState& known, std::uint64_t begin,
                                  std::uint64_t end, const Interrupts::Scope& scope) {
  Look look;
  look.file_ = file;
  look.view_ = SL_TRY(maps_.get(file, known, begin, end, scope));
  return look;
}

/// Calls visit(segment, length) for everything in [begin, end), in order; holes are segments of
/// zeros.
template <typename Visit>
Status Reader::visit(const Look& look, std::uint64_t begin, std::uint64_t end, Visit visit) {
  const FileMaps::View& view = look.view_;
  const std::uint64_t data_end = std::max(begin, std::min(end, view.length));
  std::uint64_t at = begin;
  Status status;
  while (at < data_end && status.ok()) {
    const std::uint64_t chunk = at / kChunkSize, base = chunk * kChunkSize;
    const std::uint64_t stop = std::min(data_end, base + kChunkSize);
    SL_CHECK(chunk >= view.first_chunk && chunk - view.first_chunk < view.chunks.size());
    view.chunks[chunk - view.first_chunk]->visit(
        at - base, stop - base, [&](std::uint64_t from, std::uint64_t to, const Segment& segment) {
          if (status.ok() && base + from > at) status = visit(Segment(), base + from - at);
          if (status.ok()) status = visit(segment, to - from);
          at = base + to;
        });
    if (status.ok() && at < stop) status = visit(Segment(), stop - at);
    at = stop;
  }
  if (status.ok() && data_end < end) status = visit(Segment(), end - data_end);
  return status;
}

/// Calls visit(source) for each block under a segment of data.
template <typename Visit>
Status Reader::visit_blocks(const Look& look, const Segment& segment, std::uint64_t length,
                            Visit visit) {
  std::uint64_t at = segment.offset;
  const std::uint64_t end = at + length;
  while (at < end) {
    const std::uint64_t index = at / kBlockSize, base = index * kBlockSize;
    const std::uint64_t stop = std::min(end, base + kBlockSize);
    Source source;
    source.range.block = {segment.owner, segment.slice, static_cast<std::uint32_t>(index)};
    source.range.block_length =
        static_cast<std::uint32_t>(std::min(kBlockSize, segment.slice_length - base));
    source.range.begin = static_cast<std::uint32_t>(at - base);
    source.range.end = static_cast<std::uint32_t>(stop - base);
    source.layout = segment.layout;
    source.branch = look.file_.branch;
    SL_TRY(visit(source));
    at = stop;
  }
  return {};
}

Status Reader::read(const Look& look, std::uint64_t begin, std::uint64_t end, Advice& advice,
                    std::vector<Piece>& pieces, const Interrupts::Scope& scope) {
  return visit(look, begin, end, [&](const Segment& segment, std::uint64_t length) {
    return read_segment(look, segment, length, advice, pieces, scope);
  });
}

Status Reader::read_segment(const Look& look, const Segment& segment, std::uint64_t length,
                            Advice& advice, std::vector<Piece>& pieces,
                            const Interrupts::Scope& scope) {
  switch (segment.kind) {
    case pb::SliceEntry::ZERO:
      append_zeros(length, pieces);
      return {};
    case pb::SliceEntry::INLINE:
      pieces.push_back(
          {bytes_of(*segment.inline_data).subspan(segment.offset, length), segment.inline_data});
      return {};
    case pb::SliceEntry::DATA:
      break;
    default:
      return Status(Errc::unsupported, "a slice of a kind that this version cannot read");
  }
  // Several blocks of one read are fetched side by side.
  bool first = true;
  return visit_blocks(look, segment, length, [&](const Source& source) {
    if (first && length > source.range.end - source.range.begin) {
      first = false;
      const auto here = source.range.end - source.range.begin;
      Segment rest = segment;
      rest.skip(here);
      SL_TRY(visit_blocks(look, rest, length - here, [&](const Source& later) {
        fetch_ahead(later);
        return Status();
      }));
    }
    return read_block(source, advice, pieces, scope);
  });
}

Status Reader::read_block(Source source, Advice& advice, std::vector<Piece>& pieces,
                          const Interrupts::Scope& scope) {
  BlockCache::Range& range = source.range;
  const std::uint32_t wanted = range.end - range.begin;
  for (bool first = true;; first = false) {
    const std::uint32_t here = cache_.look(range, pieces);
    if (first) {
      meters_->block_hit_bytes.add(here);
      meters_->block_miss_bytes.add(wanted - here);
    }
    range.begin += here;
    if (range.begin == range.end) return {};
    advice.waited = true;
    const BlockCache::Claim claim = cache_.claim(range, advice.sequential);
    if (claim) {
      SL_TRY(fetch(source, claim, BlockClient::Persistence::wait, scope));
    } else {
      SL_TRY(cache_.wait(range, scope));
    }
  }
}

Status Reader::fetch(const Source& source, const BlockCache::Claim& claim,
                     BlockClient::Persistence persistence, const Interrupts::Scope& scope) {
  const auto attachment = attachments_.attachment(source.branch, scope.unique());
  Status status = attachment.status();
  if (status.ok()) {
    const BlockClient::Get get{source.range.block, source.layout, claim.offset, persistence,
                               attachment->session};
    status = blocks_.get(get, claim.memory, scope);
  }
  cache_.filled(claim, status);
  return status;
}

void Reader::fetch_ahead(const Look& look, std::uint64_t begin, std::uint64_t end) {
  // A failure here is met again, and told, by whoever reads the bytes.
  static_cast<void>(visit(look, begin, std::min(end, look.length()),
                          [&](const Segment& segment, std::uint64_t length) {
                            if (segment.kind != pb::SliceEntry::DATA) return Status();
                            return visit_blocks(look, segment, length, [&](const Source& source) {
                              fetch_ahead(source);
                              return Status();
                            });
                          }));
}

void Reader::fetch_ahead(const Source& source) {
  static_cast<void>(pool_.try_submit([this, source] {
    if (interrupts_.stopped()) return;
    const Interrupts::Scope scope(interrupts_, 0);
    while (const BlockCache::Claim claim = cache_.claim(source.range, true)) {
      if (!fetch(source, claim, BlockClient::Persistence::try_once, scope).ok()) return;
    }
  }));
}

Status Reader::read_into(const Look& look, std::uint64_t begin, const Landing& out,
                         const Interrupts::Scope& scope) {
  Batch batch;
  std::size_t at = 0;
  std::vector<std::pair<Source, Landing>> blocks;
  Status status =
      visit(look, begin, begin + out.size(), [&](const Segment& segment, std::uint64_t length) {
        const Landing part = out.subspan(at, length);
        at += length;
        if (segment.kind == pb::SliceEntry::DATA) {
          return visit_blocks(look, segment, length,
                              [&, used = std::size_t{0}](const Source& source) mutable {
                                const std::size_t n = source.range.end - source.range.begin;
                                blocks.emplace_back(source, part.subspan(used, n));
                                used += n;
                                return Status();
                              });
        }
        Advice advice;
        std::vector<Piece> pieces;
        SL_TRY(read_segment(look, segment, length, advice, pieces, scope));
        return put(pieces, part);
      });
  if (!status.ok()) return status;
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    batch.expect(1);
    const auto work = [this, &batch, &scope, block = blocks[i]] {
      batch.done(get_into(block.first, block.second, scope));
    };
    if (!pool_.try_submit(work).ok()) work();
  }
  if (!blocks.empty()) status = get_into(blocks[0].first, blocks[0].second, scope);
  const Status others = batch.wait();
  return status.ok() ? others : status;
}

Status Reader::get_into(const Source& source, const Landing& out, const Interrupts::Scope& scope) {
  std::vector<Piece> here;
  if (cache_.look(source.range, here) == out.size()) return put(here, out);
  const Attachment attachment = SL_TRY(attachments_.attachment(source.branch, scope.unique()));
  const BlockClient::Get get{source.range.block, source.layout, source.range.begin,
                             BlockClient::Persistence::wait, attachment.session};
  return blocks_.get(get, out, scope);
}

Result<bool> Reader::changed(const Look& look, std::uint64_t begin, std::uint64_t end,
                             const Interrupts::Scope& scope) {
  maps_.invalidate(look.file_);
  const FileState any{0, 0};
  const Look now = SL_TRY(this->look(look.file_, any, begin, end, scope));
  if (now.view_.version != look.view_.version) return true;
  // The same bytes may lie in other slices: the keeper merges long lists.
  return slices_in(now, begin, end) != slices_in(look, begin, end);
}

std::vector<SliceId> Reader::slices_in(const Look& look, std::uint64_t begin, std::uint64_t end) {
  std::vector<SliceId> slices;
  const Status visited =
      visit(look, begin, end, [&](const Segment& segment, std::uint64_t) -> Status {
        slices.push_back(segment.slice);
        return {};
      });
  SL_CHECK(visited.ok());
  return slices;
}

}  // namespace starlane::client
