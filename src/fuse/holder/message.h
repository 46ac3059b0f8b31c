// What the holder of a mount and its daemon say to each other, over a seqpacket socket: one struct
// a message, at most one descriptor with it. The two may be of different builds (`starlane
// upgrade`), so it changes like a disk format: docs/formats.md. Plain data; the C library is all it
// needs.
#pragma once
#include <cstdint>

namespace starlane::fuse {

/// What a holder keeps for the next daemon: a descriptor under each of these.
enum class HeldItem : std::uint16_t {
  device = 0,      // /dev/fuse: the connection
  ledger = 1,      // memfd: handles, views, facts (client/takeover)
  arena = 2,       // memfd: what write() acknowledged (client/write)
  cache = 3,       // the node cache's tmpfs
  cache_view = 4,  // its read-only view
  control = 5,     // a listening socket, for `starlane upgrade`
};
inline constexpr int kHeldItems = 16;  // a later build's items are kept as well

struct HolderMessage {
  static constexpr std::uint32_t kMagic = 0x31484c53;  // "SLH1"
  enum Kind : std::uint16_t {
    // holder to daemon
    given = 1,    // a descriptor that is kept
    welcome = 2,  // all were given; number: daemons before this one; text: why the last one ended;
                  // item: the signal that ended it, 0: none
    leave = 3,    // finish what was begun, take nothing new, end: another comes
    // daemon to holder
    keep = 16,    // instead of what was kept under this item; text: of the device, its number
    ready = 17,   // it serves
    failed = 18,  // it cannot start; text: one sentence
    beat = 19,    // it lives
  };

  std::uint32_t magic = kMagic;
  std::uint16_t kind = 0;
  std::uint16_t item = 0;  // a HeldItem, but for `welcome`
  std::uint64_t number = 0;
  char text[240] = {};  // with its zero
};
static_assert(sizeof(HolderMessage) == 256);

/// Sends one, with a descriptor unless fd is -1. False: nobody listens.
bool send_message(int socket, const HolderMessage& message, int fd, int flags);
/// 1: one was received, *fd its descriptor or -1. 0: the other end is gone. -1: none now
/// (MSG_DONTWAIT), or a message of no sense, which is dropped.
int receive_message(int socket, HolderMessage* message, int* fd, int flags);

/// The environment variable by which a daemon finds the socket to its holder.
inline constexpr const char* kHolderVariable = "STARLANE_HOLDER_FD";

}  // namespace starlane::fuse
