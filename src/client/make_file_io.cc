#include "client/make_file_io.h"

#include <algorithm>

#include "client/read/reader.h"
#include "client/write/write_back.h"

namespace starlane::client {
namespace {

constexpr int kGoneTries = 8;

class LocalFileIo final : public FileIo, private WriteBack::Listener {
 public:
  LocalFileIo(MetaService& meta, BlockResolver resolve, Attachments& attachments,
              Requests& requests, std::shared_ptr<Arena> arena, const FileIoOptions& options)
      : arena_(arena),
        blocks_(meta, std::move(resolve)),
        reader_(meta, blocks_, attachments, interrupts_,
                {.cache_bytes = options.cache_bytes,
                 .max_window_bytes = options.read_ahead_bytes,
                 .threads = options.fetch_threads,
                 .meters = options.meters}),
        write_back_(meta, blocks_, attachments, requests, interrupts_, std::move(arena), *this,
                    {options.put_threads, options.commit_threads, options.dirty_age,
                     options.durable_every, options.layout, options.taken_over, options.ledger}) {}

  ~LocalFileIo() override {
    arena_->keep_records();
    interrupts_.stop();
  }

  /// Returns when no call of the one before is under way: its object may go.
  void on_commit(Committed committed) override SL_EXCLUDES(m_) {
    MutexLock lock(m_);
    committed_ = std::make_shared<const Committed>(std::move(committed));
    while (telling_ != 0) told_.wait(m_);
  }
  std::shared_ptr<ReadStreams> new_streams() override { return std::make_shared<ReadStreams>(); }

  Result<std::vector<Piece>> read(FileKey file, const FileState& known, std::uint64_t offset,
                                  std::uint32_t length, ReadStreams* streams,
                                  std::uint64_t unique) override {
    const Interrupts::Scope scope(interrupts_, unique);
    for (int tries = 0;; ++tries) {
      auto pieces = try_read({file, known, offset, offset + length}, streams, scope);
      if (pieces.code() != Errc::not_found || tries == kGoneTries)
        return for_application(std::move(pieces));
    }
  }

  Result<std::uint64_t> read_into(FileKey file, const FileState& known, std::uint64_t offset,
                                  const Landing& out, std::uint64_t unique) override {
    const Interrupts::Scope scope(interrupts_, unique);
    for (int tries = 0;; ++tries) {
      auto count = try_read_into({file, known, offset, offset + out.size()}, out, scope);
      if (count.code() != Errc::not_found || tries == kGoneTries)
        return for_application(std::move(count));
    }
  }

  Status write(const Write& request) override { return write_back_.write(request); }
  Result<std::uint64_t> append(const Write& request, Safety safety) override {
    return write_back_.append(request, safety);
  }
  std::optional<DirtyState> dirty(FileKey file) override { return write_back_.dirty(file); }
  bool put_off(FileKey file, const SetStat& change) override {
    return write_back_.put_off(file, change);
  }
  Status flush(FileKey file, Safety safety) override { return write_back_.flush(file, safety); }
  void push_out(FileKey file) override {
    (void)write_back_.flush(file, Safety::accepted, WriteBack::Told::kept);
  }
  Status flush_branch(BranchId branch, Safety safety) override {
    return write_back_.flush_branch(branch, safety);
  }
  Status flush_all(Safety safety) override { return write_back_.flush_branch({}, safety); }
  void lost(FileKey file, const Status& why) override { write_back_.lost(file, why); }
  void discard(FileKey file, std::uint64_t length) override { write_back_.discard(file, length); }
  void invalidate(FileKey file) override { reader_.maps().invalidate(file); }
  void return_escrow(BranchId branch) override { write_back_.return_escrow(branch); }
  void interrupt(std::uint64_t unique) override { interrupts_.interrupt(unique); }

  Figures figures() override {
    const auto blocks = blocks_.figures();
    return {write_back_.dirty_bytes(), arena_->data_bytes(), reader_.cached_bytes(),
            blocks.fetched_bytes, blocks.put_bytes};
  }

 private:
  struct Wanted {
    FileKey file;
    FileState known;
    std::uint64_t begin = 0, end = 0;
  };

  Result<std::vector<Piece>> try_read(Wanted wanted, ReadStreams* streams,
                                      const Interrupts::Scope& scope);
  Status read_gap(const Reader::Look& look, std::uint64_t begin, std::uint64_t end,
                  Reader::Advice& advice, std::vector<Piece>& pieces,
                  const Interrupts::Scope& scope);
  Result<std::uint64_t> try_read_into(Wanted wanted, const Landing& out,
                                      const Interrupts::Scope& scope);
  void committed(FileKey file, const pb::CommitReply& reply,
                 const std::vector<pb::NewSlice>& slices) override;

  static Status for_application(Status status) {
    const bool hidden = status.code() == Errc::not_found || status.code() == Errc::corrupt ||
                        status.code() == Errc::protocol || status.code() == Errc::unsupported;
    return hidden ? Status(Errc::io, status.text()) : status;
  }
  template <typename T>
  static Result<T> for_application(Result<T> result) {
    if (result.ok()) return result;
    return for_application(result.status());
  }

  Interrupts interrupts_;
  const std::shared_ptr<Arena> arena_;
  Mutex m_;
  CondVar told_;
  std::shared_ptr<const Committed> committed_ SL_GUARDED_BY(m_);
  int telling_ SL_GUARDED_BY(m_) = 0;  // calls of it under way
  BlockClient blocks_;
  Reader reader_;
  WriteBack write_back_;
};

/// Whether the parts leave nothing of [begin, end) open.
bool covers(const WriteBack::Shown& shown, std::uint64_t begin, std::uint64_t end) {
  for (const auto& part : shown.parts) {
    if (part.begin != begin) return false;
    begin += part.piece.bytes.size();
  }
  return begin == end;
}

/// The dirty parts first, then the map: what is committed in between is in the map already when it
/// leaves the parts.
Result<std::vector<Piece>> LocalFileIo::try_read(Wanted wanted, ReadStreams* streams,
                                                 const Interrupts::Scope& scope) {
  const auto shown = write_back_.show(wanted.file, wanted.begin, wanted.end);
  std::vector<Piece> pieces;
  if (covers(shown, wanted.begin, wanted.end)) {
    for (const auto& part : shown.parts) pieces.push_back(part.piece);
    return pieces;
  }
  ReadStreams::Advice ahead;
  if (streams != nullptr && wanted.end > wanted.begin) {
    ahead = streams->note(wanted.begin, wanted.end - wanted.begin, reader_.max_window());
  }
  const Reader::Look look = SL_TRY(reader_.look(wanted.file, wanted.known, wanted.begin,
                                                std::max(wanted.end, ahead.ahead_end), scope));
  const std::uint64_t end = std::min(wanted.end, std::max(look.length(), shown.length));
  if (ahead.ahead_begin < ahead.ahead_end)
    reader_.fetch_ahead(look, ahead.ahead_begin, ahead.ahead_end);
  Reader::Advice advice{ahead.sequential, false};
  std::uint64_t at = wanted.begin;
  for (const auto& part : shown.parts) {
    SL_TRY(read_gap(look, at, part.begin, advice, pieces, scope));
    pieces.push_back(part.piece);
    at = part.begin + part.piece.bytes.size();
  }
  SL_TRY(read_gap(look, at, end, advice, pieces, scope));
  if (advice.waited && streams != nullptr) streams->waited(wanted.begin);
  return pieces;
}

/// not_found: the file has changed under us, read again. io: a block is gone although its map still
/// names it.
Status LocalFileIo::read_gap(const Reader::Look& look, std::uint64_t begin, std::uint64_t end,
                             Reader::Advice& advice, std::vector<Piece>& pieces,
                             const Interrupts::Scope& scope) {
  if (begin >= end) return {};
  Status status = reader_.read(look, begin, end, advice, pieces, scope);
  if (status.code() != Errc::not_found) return status;
  const bool changed = SL_TRY(reader_.changed(look, begin, end, scope));
  return changed ? status : Status(Errc::io, "a block of the file is gone");
}

Result<std::uint64_t> LocalFileIo::try_read_into(Wanted wanted, const Landing& out,
                                                 const Interrupts::Scope& scope) {
  const auto shown = write_back_.show(wanted.file, wanted.begin, wanted.end);
  const Reader::Look look =
      SL_TRY(reader_.look(wanted.file, wanted.known, wanted.begin, wanted.end, scope));
  const std::uint64_t end = std::min(wanted.end, std::max(look.length(), shown.length));
  if (end <= wanted.begin) return std::uint64_t{0};
  const Status status =
      reader_.read_into(look, wanted.begin, out.subspan(0, end - wanted.begin), scope);
  if (status.code() == Errc::not_found) {
    const bool changed = SL_TRY(reader_.changed(look, wanted.begin, end, scope));
    return changed ? status : Status(Errc::io, "a block of the file is gone");
  }
  if (!status.ok()) return status;
  for (const auto& part : shown.parts) SL_TRY(out.put(part.begin - wanted.begin, part.piece.bytes));
  return end - wanted.begin;
}

void LocalFileIo::committed(FileKey file, const pb::CommitReply& reply,
                            const std::vector<pb::NewSlice>& slices) {
  // An answer to a repeated commit does not say what lies between; nor does one to an append say
  // where its bytes are.
  const bool known = !slices.empty() && reply.previous_version() != reply.attributes().version();
  if (known) {
    reader_.maps().committed(file, reply.previous_version(), reply.attributes(), slices);
  } else {
    reader_.maps().invalidate(file);
  }
  std::shared_ptr<const Committed> tell;
  {
    MutexLock lock(m_);
    tell = committed_;
    ++telling_;
  }
  if (tell && *tell) (*tell)(file, reply.attributes(), reply.previous_version());
  MutexLock lock(m_);
  --telling_;
  told_.notify_all();
}

}  // namespace

Result<std::unique_ptr<FileIo>> make_file_io(MetaService& meta, BlockResolver resolve,
                                             Attachments& attachments, Requests& requests,
                                             const FileIoOptions& options) {
  UniqueFd own;
  if (options.arena_fd < 0) own = SL_TRY(Arena::create(options.arena_bytes));
  auto arena = SL_TRY(Arena::open(own ? own.get() : options.arena_fd));
  return std::unique_ptr<FileIo>(std::make_unique<LocalFileIo>(
      meta, std::move(resolve), attachments, requests, std::move(arena), options));
}

}  // namespace starlane::client
