#include "client/read/read_streams.h"

#include <algorithm>

namespace starlane::client {
namespace {

constexpr std::uint64_t kSlack = 1_MiB;  // the kernel's own read-ahead comes out of order
constexpr std::uint64_t kFirstWindow = 512_KiB;
constexpr std::uint64_t kUnaskedWindow =
    8_MiB;  // grows so far by hits alone, further only if readers wait

}  // namespace

ReadStreams::Advice ReadStreams::note(std::uint64_t offset, std::uint64_t length,
                                      std::uint64_t max_window) {
  MutexLock lock(m_);
  Stream* stream = continued_by(offset, length);
  if (stream != nullptr) {
    grow(*stream, length, max_window);
  } else {
    stream = &begin_at(offset, length);
  }
  stream->used = ++now_;
  stream->next = std::max(stream->next, offset + length);
  Advice advice;
  advice.sequential = stream->window != 0;
  if (!advice.sequential) return advice;
  std::uint64_t end = stream->next + std::min(stream->window, max_window);
  if (stream->window >= kBlockSize) end = round_down(end, kBlockSize);
  const std::uint64_t begin = std::max(stream->asked_end, stream->next);
  if (end < begin + std::min<std::uint64_t>(stream->window / 4, kBlockSize) + 1) return advice;
  advice.ahead_begin = begin;
  advice.ahead_end = stream->asked_end = end;
  return advice;
}

/// The stream whose next read this is, or a repeated or early one.
ReadStreams::Stream* ReadStreams::continued_by(std::uint64_t offset, std::uint64_t length) {
  Stream* best = nullptr;
  for (Stream& stream : streams_) {
    if (stream.used == 0) continue;
    // A stream not yet proven must be continued exactly: else random reads of a small file look
    // like streams.
    const std::uint64_t slack = stream.window == 0 ? 0 : kSlack;
    const bool follows = offset + slack >= stream.next && offset <= stream.next + slack;
    const bool overlaps =
        stream.window == 0 && offset < stream.next && offset + length > stream.next;
    if ((follows || overlaps) && (best == nullptr || stream.next > best->next)) best = &stream;
  }
  return best;
}

ReadStreams::Stream& ReadStreams::begin_at(std::uint64_t offset, std::uint64_t length) {
  Stream& stream = *std::ranges::min_element(streams_, {}, &Stream::used);
  stream = {};
  stream.next = offset + length;
  if (length >= kLargeRead) stream.window = 2 * length;
  return stream;
}

void ReadStreams::grow(Stream& stream, std::uint64_t length, std::uint64_t max_window) {
  if (stream.window == 0) {
    stream.window = std::max(kFirstWindow, 2 * length);
  } else if (stream.window < kUnaskedWindow || stream.waited) {
    stream.window *= 2;
  }
  stream.window = std::min(stream.window, max_window);
  stream.waited = false;
}

void ReadStreams::waited(std::uint64_t offset) {
  MutexLock lock(m_);
  for (Stream& stream : streams_) {
    if (stream.used == 0 || offset > stream.next || stream.next - offset > kSlack + kBlockSize)
      continue;
    // Only when what it waits for was asked for ahead: before that, a longer window would not have
    // helped.
    stream.waited = stream.waited || offset < stream.asked_end;
  }
}

}  // namespace starlane::client
