// The client's way to one server: a bounded pool of authenticated connections, each of which serves
// one call at a time, driven by the caller's own thread. Reconnects with back-off, and repeats a
// call only where that is safe. Any thread.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "common/bulk.h"
#include "common/mutex.h"
#include "metrics/meter.h"
#include "net/exposed_memory.h"
#include "net/handshake.h"
#include "net/transport.h"
#include "proto/call.h"
#include "proto/frame.h"

namespace starlane::rpc {

struct ChannelOptions {
  net::Purpose purpose = net::Purpose::meta;
  std::size_t connections = 16;         // at most; further calls wait for a free one
  Milliseconds connect_timeout{2'000};  // of connecting and proving who we are
  Milliseconds idle_timeout{
      60'000};  // connections unused for so long are closed; less than the server's
  Milliseconds backoff_min{10};  // between attempts to connect, doubled after each failure
  Milliseconds backoff_max{1'000};
  std::size_t attempts = 3;       // of one call, while repeating it is safe
  std::uint64_t mount_nonce = 0;  // of this process, from its start
  // Outlives the channel. Large bulk goes through its memory where the server can reach it.
  net::MemoryFabric* fabric = nullptr;
};

/// One call: what to send and where its bulk comes from or goes to. The memory outlives the call.
struct Request {
  FrameKind kind = FrameKind::meta_request;
  std::uint16_t method = 0;
  ByteSpan payload;
  BulkSource* source = nullptr;   // a put's bytes
  BulkSink* sink = nullptr;       // takes a get's
  std::uint64_t sink_length = 0;  // exactly so many, unless the call fails
  bool repeatable = false;        // doing it twice is doing it once
};

/// One connection of a channel. One thread at a time.
struct Line {
  std::unique_ptr<net::Connection> connection;
  std::uint64_t sequence = 0;
  Nanoseconds used{};                           // when it last served a call, on the boot clock
  std::unique_ptr<net::ExposedMemory> exposed;  // that the server has reached, or null
  std::vector<std::byte> buffer;                // the last reply's body
  std::vector<std::byte> stage;  // bulk on its way to or from a caller without memory
};

class Channel {
 public:
  /// `key` and `transports` outlive the channel. Connects when first used.
  Channel(net::Endpoint endpoint, const net::Key& key, std::span<net::Transport* const> transports,
          ChannelOptions options);
  /// No call is in progress.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// The server's answer, which holds its connection until it is destroyed: `payload` lies there.
  class Answer {
   public:
    Answer(Channel& channel, std::unique_ptr<Line> line, FrameHeader header, ByteSpan payload)
        : channel_(&channel), line_(std::move(line)), header_(header), payload_(payload) {}
    Answer(Answer&&) = default;
    Answer& operator=(Answer&&) = delete;
    ~Answer();
    /// The server's own verdict.
    Status status() const;
    ByteSpan payload() const { return payload_; }
    /// The answer cannot be understood: its connection is closed.
    void distrust();

   private:
    Channel* channel_;
    std::unique_ptr<Line> line_;
    FrameHeader header_;
    ByteSpan payload_;
  };

  /// Sends and waits, asleep. An error is the way's: unavailable (the connection broke, or nobody
  /// listens), timeout, protocol, unauthenticated, busy. The server's errors are in the answer.
  Result<Answer> call(const Call& call, const Request& request);

  const net::Endpoint& endpoint() const { return endpoint_; }
  struct Counts {
    std::uint64_t connects = 0, failed_connects = 0, repeats = 0;
    std::uint64_t attached = 0;  // connections whose bulk goes through exposed memory
    std::size_t open = 0;
  };
  Counts counts() const SL_EXCLUDES(m_);
  /// How long calls took beyond what the server had them: the way there, the wait for one of its
  /// workers, and the way back.
  metrics::Counted way() const { return way_.counted(); }

 private:
  Result<std::unique_ptr<Line>> take(Deadline deadline) SL_EXCLUDES(m_);
  Result<std::unique_ptr<Line>> connect(Deadline deadline) SL_EXCLUDES(m_);
  Result<std::unique_ptr<Line>> connect_now(Deadline deadline);
  std::unique_ptr<Line> take_idle() SL_REQUIRES(m_);
  void give_back(std::unique_ptr<Line> line) SL_EXCLUDES(m_);
  void drop(std::unique_ptr<Line> line, bool others_too) SL_EXCLUDES(m_);
  std::vector<std::unique_ptr<Line>> take_expired() SL_REQUIRES(m_);
  Status pause(std::size_t attempt, Deadline deadline) const;

  const net::Endpoint endpoint_;
  const net::Key& key_;
  const std::vector<net::Transport*> transports_;
  const ChannelOptions options_;
  metrics::Histogram way_;

  mutable Mutex m_;
  CondVar freed_;
  std::vector<std::unique_ptr<Line>> idle_ SL_GUARDED_BY(m_);  // the last one was used last
  std::size_t open_ SL_GUARDED_BY(m_) = 0;                     // idle, in use, or being made
  std::size_t failures_ SL_GUARDED_BY(m_) = 0;                 // to connect, in a row
  Nanoseconds not_before_ SL_GUARDED_BY(m_){};                 // no attempt to connect until then
  Status last_failure_ SL_GUARDED_BY(m_);
  Counts counts_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::rpc
