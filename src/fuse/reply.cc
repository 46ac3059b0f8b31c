#include "fuse/reply.h"

#include <limits.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/errno.h"
#include "common/log.h"

namespace starlane::fuse {
namespace {

constexpr std::size_t kFewPieces = 32;

iovec vector_of(ByteSpan bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

std::uint64_t seconds_of(Nanoseconds duration) {
  return duration.count() <= 0 ? 0 : static_cast<std::uint64_t>(duration.count()) / 1'000'000'000U;
}
std::uint32_t rest_of(Nanoseconds duration) {
  return duration.count() <= 0 ? 0 : static_cast<std::uint32_t>(duration.count() % 1'000'000'000);
}

}  // namespace

int errno_for_kernel(Errc code) {
  const int number = errno_of(code);
  return number == ENOSYS ? EOPNOTSUPP : number;
}

fuse_attr attributes_for_kernel(const client::Stat& stat) {
  fuse_attr out{};
  out.ino = stat.ino;
  out.size = stat.length;
  out.blocks = stat.blocks;
  out.atime = static_cast<std::uint64_t>(stat.atime.seconds);
  out.mtime = static_cast<std::uint64_t>(stat.mtime.seconds);
  out.ctime = static_cast<std::uint64_t>(stat.ctime.seconds);
  out.atimensec = stat.atime.nanoseconds;
  out.mtimensec = stat.mtime.nanoseconds;
  out.ctimensec = stat.ctime.nanoseconds;
  out.mode = stat.mode;
  out.nlink = stat.nlink;
  out.uid = stat.uid;
  out.gid = stat.gid;
  out.rdev = stat.rdev;
  out.blksize = 4096;
  return out;
}

fuse_attr_out attributes_answer(const client::AttributesReply& reply) {
  fuse_attr_out out{};
  out.attr_valid = seconds_of(reply.valid);
  out.attr_valid_nsec = rest_of(reply.valid);
  out.attr = attributes_for_kernel(reply.stat);
  return out;
}

fuse_entry_out entry_answer(const client::EntryReply& reply) {
  fuse_entry_out out{};
  out.nodeid = reply.node.inode ? reply.node.pack() : 0;
  out.generation = reply.generation;
  out.entry_valid = seconds_of(reply.entry_valid);
  out.entry_valid_nsec = rest_of(reply.entry_valid);
  out.attr_valid = seconds_of(reply.attributes.valid);
  out.attr_valid_nsec = rest_of(reply.attributes.valid);
  out.attr = attributes_for_kernel(reply.attributes.stat);
  return out;
}

bool Reply::bytes(ByteSpan bytes) {
  const iovec one = vector_of(bytes);
  return send(0, {&one, 1});
}

bool Reply::pieces(std::span<const client::Piece> pieces) {
  if (pieces.size() <= kFewPieces) {
    std::array<iovec, kFewPieces> vectors;
    for (std::size_t i = 0; i < pieces.size(); ++i) vectors[i] = vector_of(pieces[i].bytes);
    return send(0, {vectors.data(), pieces.size()});
  }
  if (pieces.size() < IOV_MAX) {
    std::vector<iovec> vectors;
    for (const client::Piece& piece : pieces) vectors.push_back(vector_of(piece.bytes));
    return send(0, vectors);
  }
  std::vector<std::byte> joined;  // more than one write may name
  for (const client::Piece& piece : pieces)
    joined.insert(joined.end(), piece.bytes.begin(), piece.bytes.end());
  return bytes(joined);
}

bool Reply::send(int error_number, std::span<const iovec> body) {
  SL_CHECK(!answered_);
  answered_ = true;
  if (error_number != 0) outcome_ = error_number;
  fuse_out_header header{};
  header.error = -error_number;
  header.unique = unique_;
  std::array<iovec, kFewPieces + 1> few;
  std::vector<iovec> many;
  iovec* vectors = few.data();
  if (body.size() > kFewPieces) {
    many.resize(body.size() + 1);
    vectors = many.data();
  }
  std::size_t length = sizeof header;
  int count = 1;
  for (const iovec& piece : body) {
    if (piece.iov_len == 0) continue;
    vectors[count++] = piece;
    length += piece.iov_len;
  }
  answered_bytes_ = length - sizeof header;
  header.len = static_cast<std::uint32_t>(length);
  vectors[0] = {&header, sizeof header};
  if (::writev(device_, vectors, count) >= 0) return true;
  const int failure = errno;
  if (failure == ENOENT || failure == ENODEV || failure == ECONNABORTED) return false;
  SL_LOG(error, "event=fuse_reply_refused unique={} length={} error=\"{}\"", unique_, length,
         std::strerror(failure));
  if (error_number == 0) {  // the application must not wait for ever
    const fuse_out_header failed{sizeof failed, -EIO, unique_};
    static_cast<void>(!::write(device_, &failed, sizeof failed));
  }
  return false;
}

}  // namespace starlane::fuse
