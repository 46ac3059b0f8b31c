#include "rpc/channel.h"

#include <poll.h>

#include <algorithm>

#include "rpc/attach.h"
#include "rpc/exchange.h"
#include "rpc/frame_io.h"

namespace starlane::rpc {
namespace {

constexpr std::size_t kKeptBuffer =
    1 << 20;  // a line's buffer larger than this is given up after its call

Deadline sooner(Deadline deadline, Nanoseconds at_most) {
  return deadline.left() < at_most ? deadline : Deadline::after(at_most);
}

}  // namespace

Channel::Channel(net::Endpoint endpoint, const net::Key& key,
                 std::span<net::Transport* const> transports, ChannelOptions options)
    : endpoint_(std::move(endpoint)),
      key_(key),
      transports_(transports.begin(), transports.end()),
      options_(options) {
  SL_CHECK(options_.connections > 0 && options_.attempts > 0);
}

Channel::~Channel() {
  MutexLock lock(m_);
  SL_CHECK(open_ == idle_.size());
}

Channel::Answer::~Answer() {
  if (!line_) return;
  // After this verdict the server closes its end.
  const bool ends = header_.status == static_cast<std::uint16_t>(Errc::protocol);
  ends ? channel_->drop(std::move(line_), false) : channel_->give_back(std::move(line_));
}

Status Channel::Answer::status() const { return status_of(header_, payload_); }

void Channel::Answer::distrust() {
  payload_ = {};
  if (line_) channel_->drop(std::move(line_), false);
}

Channel::Counts Channel::counts() const {
  MutexLock lock(m_);
  Counts counts = counts_;
  counts.open = open_;
  return counts;
}

Result<Channel::Answer> Channel::call(const Call& call, const Request& request) {
  for (std::size_t attempt = 1;; ++attempt) {
    auto line = take(call.deadline);
    if (!line.ok()) {
      if (line.code() != Errc::unavailable || attempt >= options_.attempts) return line.status();
      SL_TRY(pause(attempt, call.deadline));
      continue;
    }
    const Nanoseconds began = system_clock().boot();
    Exchanged done = exchange(**line, call, request, options_.mount_nonce);
    if (done.way.ok()) {
      const Nanoseconds served = std::chrono::microseconds(done.header.served_us);
      way_.record(system_clock().boot() - began - served);
      return Answer(*this, std::move(*line), done.header, done.payload);
    }
    const bool gone = done.way.code() == Errc::unavailable;
    drop(std::move(*line), gone);
    const bool safe = request.repeatable || !done.sent;
    const bool rewindable = request.source == nullptr || request.source->memory();
    if (!gone || !safe || !rewindable || attempt >= options_.attempts) return done.way;
    MutexLock lock(m_);
    ++counts_.repeats;
  }
}

/// Between attempts of one call, while the server cannot be reached.
Status Channel::pause(std::size_t attempt, Deadline deadline) const {
  const Nanoseconds wait = std::min(options_.backoff_max, options_.backoff_min * (1 << attempt));
  if (deadline.left() <= wait)
    return Status(Errc::unavailable, endpoint_.to_string() + " cannot be reached");
  (void)::poll(nullptr, 0, static_cast<int>(std::chrono::ceil<Milliseconds>(wait).count()));
  return {};
}

Result<std::unique_ptr<Line>> Channel::take(Deadline deadline) {
  for (;;) {
    std::unique_ptr<Line> line;
    {
      MutexLock lock(m_);
      while ((line = take_idle()) == nullptr && open_ >= options_.connections) {
        const Nanoseconds left = deadline.left();
        if (left == Nanoseconds::zero()) {
          return Status(Errc::timeout, "all " + std::to_string(open_) + " connections to " +
                                           endpoint_.to_string() +
                                           " were in use until the deadline");
        }
        freed_.wait_for(m_, std::min<Nanoseconds>(left, std::chrono::seconds(1)));
      }
      if (line == nullptr) ++open_;
    }
    if (line == nullptr) return connect(deadline);
    const auto unexpected = line->connection->arrived(1);  // an end, or bytes that nobody asked for
    if (unexpected.ok() && !*unexpected) return line;
    drop(std::move(line), false);
  }
}

std::unique_ptr<Line> Channel::take_idle() {
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Line> line = std::move(idle_.back());
  idle_.pop_back();
  return line;
}

Result<std::unique_ptr<Line>> Channel::connect(Deadline deadline) {
  Result<std::unique_ptr<Line>> line = [&]() -> Result<std::unique_ptr<Line>> {
    {
      MutexLock lock(m_);
      if (system_clock().boot() < not_before_) return last_failure_;
    }
    return connect_now(sooner(deadline, options_.connect_timeout));
  }();
  MutexLock lock(m_);
  if (line.ok()) {
    failures_ = 0;
    ++counts_.connects;
    if ((*line)->exposed != nullptr) ++counts_.attached;
    return line;
  }
  --open_;
  freed_.notify_one();
  const Nanoseconds now = system_clock().boot();
  if (now >= not_before_) {  // this was an attempt of its own
    const auto wait = options_.backoff_min * (1 << std::min<std::size_t>(failures_++, 10));
    not_before_ = now + std::min(options_.backoff_max, wait);
    last_failure_ = line.status();
    ++counts_.failed_connects;
  }
  return line;
}

Result<std::unique_ptr<Line>> Channel::connect_now(Deadline deadline) {
  net::Transport* transport = SL_TRY(net::transport_for(transports_, endpoint_));
  auto line = std::make_unique<Line>();
  const Status greeted = [&]() -> Status {
    line->connection = SL_TRY(transport->connect(endpoint_, deadline));
    const bool offers = options_.fabric != nullptr && options_.purpose == net::Purpose::data;
    const net::Agreed wanted{options_.purpose,
                             offers ? net::kFeatureExposedMemory : std::uint8_t{0},
                             options_.mount_nonce};
    const net::Agreed agreed = SL_TRY(net::greet(*line->connection, key_, wanted, deadline));
    if (agreed.features == 0) return {};
    return attach(*line, *options_.fabric, deadline);
  }();
  if (greeted.ok()) return line;
  // A server that does not greet within our own limit is as good as away.
  if (greeted.code() == Errc::timeout)
    return Status(Errc::unavailable, endpoint_.to_string() + " does not greet");
  return greeted;
}

std::vector<std::unique_ptr<Line>> Channel::take_expired() {
  const Nanoseconds limit = system_clock().boot() - options_.idle_timeout;
  const auto fresh = std::find_if(idle_.begin(), idle_.end(),
                                  [&](const auto& line) { return line->used > limit; });
  std::vector<std::unique_ptr<Line>> expired(std::make_move_iterator(idle_.begin()),
                                             std::make_move_iterator(fresh));
  idle_.erase(idle_.begin(), fresh);
  return expired;
}

void Channel::give_back(std::unique_ptr<Line> line) {
  if (line->buffer.capacity() > kKeptBuffer) line->buffer = {};
  line->used = system_clock().boot();
  std::vector<std::unique_ptr<Line>> expired;  // closed without the lock
  {
    MutexLock lock(m_);
    idle_.push_back(std::move(line));
    expired = take_expired();
    open_ -= expired.size();
    freed_.notify_one();
  }
}

/// others_too: the idle ones led to the same server, which is gone.
void Channel::drop(std::unique_ptr<Line> line, bool others_too) {
  std::vector<std::unique_ptr<Line>> closing;
  closing.push_back(std::move(line));
  MutexLock lock(m_);
  while (others_too && !idle_.empty()) closing.push_back(take_idle());
  open_ -= closing.size();
  freed_.notify_all();
}

}  // namespace starlane::rpc
