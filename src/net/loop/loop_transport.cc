#include "net/loop/loop_transport.h"

#include <algorithm>
#include <atomic>

#include "net/loop/pipe.h"

namespace starlane::net {
namespace {

constexpr int kHandshakeTurns = 2;  // of the client: its hello and its proof

struct Pipes {
  Pipe to_server, to_client;
};

/// What both ends do.
class LoopConnection : public Connection {
 public:
  LoopConnection(std::shared_ptr<Pipes> pipes, Pipe& in, Pipe& out, std::string peer)
      : pipes_(std::move(pipes)), in_(in), out_(out), peer_(std::move(peer)) {}

  Status receive(MutableByteSpan out, Deadline deadline) override {
    while (!out.empty()) {
      out = out.subspan(take(out));
      if (out.empty()) break;
      if (!SL_TRY(fetch())) SL_TRY(in_.wait(deadline));
    }
    return {};
  }
  Result<bool> arrived(std::size_t bytes) override {
    while (buffered_ < bytes) {
      if (!SL_TRY(fetch())) return false;
    }
    return true;
  }
  std::size_t buffered() const override { return buffered_; }
  int descriptor() const override { return in_.descriptor(); }
  void shutdown() override {
    down_ = true;
    in_.end();
    out_.end();
  }
  const std::string& peer() const override { return peer_; }

 protected:
  /// The byte about to be taken belongs to a repeated call, or not.
  virtual void entering(bool) {}

  /// Moves a chunk from the pipe to what is buffered; false: none there.
  Result<bool> fetch() {
    if (down_) return Status(Errc::unavailable, "the loop connection was shut down");
    std::optional<Chunk> chunk = SL_TRY(in_.pop());
    if (!chunk) return false;
    buffered_ += chunk->bytes.size();
    ahead_.push_back(std::move(*chunk));
    return true;
  }
  std::size_t take(MutableByteSpan out) {
    std::size_t done = 0;
    while (done < out.size() && !ahead_.empty()) {
      Chunk& chunk = ahead_.front();
      entering(chunk.repeat);
      const std::size_t part = std::min(out.size() - done, chunk.bytes.size() - chunk.taken);
      std::memcpy(out.data() + done, chunk.bytes.data() + chunk.taken, part);
      done += part;
      chunk.taken += part;
      if (chunk.taken == chunk.bytes.size()) ahead_.pop_front();
    }
    buffered_ -= done;
    return done;
  }
  /// All pieces as one: a send arrives whole or not at all.
  static std::vector<std::byte> joined(std::span<const ByteSpan> pieces) {
    std::vector<std::byte> bytes;
    for (const ByteSpan piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes;
  }

  const std::shared_ptr<Pipes> pipes_;
  Pipe& in_;
  Pipe& out_;

 private:
  const std::string peer_;
  std::deque<Chunk> ahead_;
  std::size_t buffered_ = 0;
  std::atomic<bool> down_{false};  // set by shutdown(), seen before each fetch
};

class ServerEnd final : public LoopConnection {
 public:
  explicit ServerEnd(const std::shared_ptr<Pipes>& pipes)
      : LoopConnection(pipes, pipes->to_server, pipes->to_client, "a loop client") {}
  ~ServerEnd() override { shutdown(); }

  Status send(std::span<const ByteSpan> pieces, Deadline deadline) override {
    if (repeat_) return {};  // the first answer went out before
    return out_.push(Chunk{joined(pieces), 0, false}, deadline);
  }

 private:
  void entering(bool repeat) override { repeat_ = repeat; }
  bool repeat_ = false;
};

/// Draws a fate for each call: all that is sent between two receives.
class ClientEnd final : public LoopConnection {
 public:
  using Fate = LoopTransport::Fate;
  ClientEnd(const std::shared_ptr<Pipes>& pipes, LoopTransport& transport, std::string peer)
      : LoopConnection(pipes, pipes->to_client, pipes->to_server, std::move(peer)),
        transport_(transport) {}

  ~ClientEnd() override {
    const Nanoseconds due = system_clock().boot() + delay_;
    const bool pending = fate_ == Fate::request_late || (fate_ == Fate::repeated && !copy_.empty());
    if (!pending && fate_ != Fate::delayed) {
      shutdown();
      return;
    }
    // What is still on its way arrives, then the end.
    transport_.courier().at(due, [pipes = pipes_, copy = std::move(copy_), late = pending] {
      if (late) pipes->to_server.force(Chunk{copy, 0, true});
      pipes->to_server.end();
      pipes->to_client.end();
    });
  }

  Status send(std::span<const ByteSpan> pieces, Deadline deadline) override {
    if (!sending_) SL_TRY(begin_call(deadline));
    return pass_on(joined(pieces), deadline);
  }
  Status receive(MutableByteSpan out, Deadline deadline) override {
    SL_TRY(meet_fate(deadline));
    return LoopConnection::receive(out, deadline);
  }
  Result<bool> arrived(std::size_t bytes) override {
    if (broken_) return broken();
    return LoopConnection::arrived(bytes);
  }

 private:
  static Status broken() { return Status(Errc::unavailable, "the loop connection broke"); }

  Status begin_call(Deadline deadline) {
    if (broken_) return broken();
    if (fate_ == Fate::repeated && !copy_.empty())
      SL_TRY(out_.push(Chunk{std::move(copy_), 0, true}, deadline));
    copy_.clear();
    sending_ = true;
    fate_ = ++turns_ <= kHandshakeTurns ? Fate::served : transport_.draw_fate(&delay_);
    due_ = system_clock().boot() + delay_;
    return {};
  }

  Status pass_on(std::vector<std::byte> bytes, Deadline deadline) {
    if (fate_ == Fate::request_lost) return {};
    if (fate_ == Fate::repeated || fate_ == Fate::request_late)
      copy_.insert(copy_.end(), bytes.begin(), bytes.end());
    if (fate_ == Fate::request_late) return {};
    Chunk chunk{std::move(bytes), 0, false};
    if (fate_ != Fate::delayed) return out_.push(std::move(chunk), deadline);
    transport_.courier().at(due_, [pipes = pipes_, chunk] { pipes->to_server.force(chunk); });
    return {};
  }

  /// Before the first byte of the answer is taken.
  Status meet_fate(Deadline deadline) {
    if (broken_) return broken();
    if (!sending_) return {};
    sending_ = false;
    if (fate_ == Fate::reply_lost) SL_TRY(in_.wait(deadline));
    broken_ =
        fate_ == Fate::reply_lost || fate_ == Fate::request_lost || fate_ == Fate::request_late;
    return broken_ ? broken() : Status();
  }

  LoopTransport& transport_;
  bool sending_ = false;
  bool broken_ = false;
  int turns_ = 0;
  Fate fate_ = Fate::served;
  Nanoseconds delay_{}, due_{};
  std::vector<std::byte> copy_;
};

}  // namespace

/// Who listens under a name: connections wait here until they are accepted.
class LoopListening {
 public:
  explicit LoopListening(Endpoint where) : local(std::move(where)) {}
  ~LoopListening() { close(); }

  bool add(std::shared_ptr<Pipes> pipes) {
    MutexLock lock(m_);
    if (closed_) return false;
    waiting_.push_back(std::move(pipes));
    bell.force(Chunk{{std::byte{1}}, 0, false});
    return true;
  }
  std::shared_ptr<Pipes> take() {
    MutexLock lock(m_);
    if (waiting_.empty()) return nullptr;
    (void)bell.pop();
    std::shared_ptr<Pipes> pipes = std::move(waiting_.front());
    waiting_.pop_front();
    return pipes;
  }
  void close() {
    MutexLock lock(m_);
    closed_ = true;
    for (const auto& pipes : waiting_) {
      pipes->to_client.end();
      pipes->to_server.end();
    }
    waiting_.clear();
  }

  const Endpoint local;
  Pipe bell;  // a byte for each that waits, for the descriptor

 private:
  Mutex m_;
  bool closed_ SL_GUARDED_BY(m_) = false;
  std::deque<std::shared_ptr<Pipes>> waiting_ SL_GUARDED_BY(m_);
};

namespace {

class LoopListener final : public Listener {
 public:
  LoopListener(LoopTransport& transport, std::shared_ptr<LoopListening> listening)
      : transport_(transport), listening_(std::move(listening)) {}
  ~LoopListener() override {
    listening_->close();
    transport_.forget(listening_->local.address, listening_.get());
  }
  Result<std::unique_ptr<Connection>> accept() override {
    const auto pipes = listening_->take();
    if (pipes == nullptr) return std::unique_ptr<Connection>();
    return std::unique_ptr<Connection>(std::make_unique<ServerEnd>(pipes));
  }
  int descriptor() const override { return listening_->bell.descriptor(); }
  const Endpoint& local() const override { return listening_->local; }

 private:
  LoopTransport& transport_;
  const std::shared_ptr<LoopListening> listening_;
};

}  // namespace

Result<std::unique_ptr<Connection>> LoopTransport::connect(const Endpoint& endpoint, Deadline) {
  const Status nobody(Errc::unavailable, "nobody listens on " + endpoint.to_string());
  std::shared_ptr<LoopListening> listening;
  {
    MutexLock lock(m_);
    const auto found = listening_.find(endpoint.address);
    if (found == listening_.end()) return nobody;
    if (faults_.refuse_connect != 0 && rng_.one_in(faults_.refuse_connect)) {
      ++faults_met_;
      return nobody;
    }
    listening = found->second;
  }
  auto pipes = std::make_shared<Pipes>();
  if (!listening->add(pipes)) return nobody;
  return std::unique_ptr<Connection>(
      std::make_unique<ClientEnd>(pipes, *this, endpoint.to_string()));
}

Result<std::unique_ptr<Listener>> LoopTransport::listen(const Endpoint& endpoint) {
  auto listening = std::make_shared<LoopListening>(endpoint);
  MutexLock lock(m_);
  if (!listening_.emplace(endpoint.address, listening).second) {
    return Status(Errc::exists, "another part of this process listens on " + endpoint.to_string());
  }
  return std::unique_ptr<Listener>(std::make_unique<LoopListener>(*this, std::move(listening)));
}

void LoopTransport::forget(const std::string& name, const LoopListening* listening) {
  MutexLock lock(m_);
  const auto found = listening_.find(name);
  if (found != listening_.end() && found->second.get() == listening) listening_.erase(found);
}

void LoopTransport::set_faults(const LoopFaults& faults) {
  MutexLock lock(m_);
  faults_ = faults;
}

std::uint64_t LoopTransport::faults_met() const {
  MutexLock lock(m_);
  return faults_met_;
}

LoopTransport::Fate LoopTransport::draw_fate(Nanoseconds* delay) {
  MutexLock lock(m_);
  const auto longest = static_cast<std::uint64_t>(Nanoseconds(faults_.longest_delay).count());
  *delay = Nanoseconds(rng_.below(longest + 1));
  const std::pair<std::uint64_t, Fate> chances[] = {{faults_.lose_request, Fate::request_lost},
                                                    {faults_.late_request, Fate::request_late},
                                                    {faults_.lose_reply, Fate::reply_lost},
                                                    {faults_.repeat_request, Fate::repeated},
                                                    {faults_.delay, Fate::delayed}};
  for (const auto& [one_in, fate] : chances) {
    if (one_in == 0 || !rng_.one_in(one_in)) continue;
    ++faults_met_;
    return fate;
  }
  return Fate::served;
}

}  // namespace starlane::net
