// What the kernel asks and a mount's holder says, fuzzed (common/fuzz.h): requests, decoded and
// then served by a file system in memory; INIT; messages on the holder's socket; what a daemon left
// of its mount in the ledger.
#include "common/fuzz.h"

#include <linux/fs.h>
#include <sys/socket.h>

#include "common/passed_fd.h"
#include "fuse/decode.h"
#include "fuse/file_flags.h"
#include "fuse/holder/message.h"
#include "fuse/kept_mount.h"
#include "fuse/memory_vfs.h"
#include "fuse/negotiate.h"
#include "fuse/serve.h"
#include "fuse/watch/describe.h"

namespace starlane::fuse {
namespace {

using namespace std::string_view_literals;

// ---- Requests ----

/// The header, then the parts: texts with their zero, structs as they are.
template <typename... Parts>
std::string message(std::uint32_t opcode, const Parts&... parts) {
  std::string body;
  [[maybe_unused]] const auto append = [&](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>)
      body.append(std::string_view(part)).push_back('\0');
    else
      body.append(text_of(std::as_bytes(std::span(&part, 1))));
  };
  (append(parts), ...);
  InHeader header{};
  header.len = static_cast<std::uint32_t>(sizeof header + body.size());
  header.opcode = opcode;
  header.unique = 42;
  header.nodeid = client::kMountRoot.pack();
  return std::string(text_of(std::as_bytes(std::span(&header, 1)))) + body;
}

std::vector<std::string> requests_on_names() {
  return {message(FUSE_LOOKUP, "name"sv),
          message(FUSE_FORGET, fuse_forget_in{1}),
          message(FUSE_BATCH_FORGET, fuse_batch_forget_in{2, 0}, fuse_forget_one{2, 1},
                  fuse_forget_one{3, 1}),
          message(FUSE_READLINK),
          message(FUSE_SYMLINK, "link"sv, "target"sv),
          message(FUSE_MKNOD, fuse_mknod_in{0100644, 0, 022, 0}, "node"sv),
          message(FUSE_MKDIR, fuse_mkdir_in{0755, 022}, "directory"sv),
          message(FUSE_UNLINK, "node"sv),
          message(FUSE_RMDIR, "directory"sv),
          message(FUSE_RENAME, std::uint64_t{1}, "name"sv, "other"sv),
          message(FUSE_RENAME2, std::uint64_t{1}, std::uint32_t{1}, std::uint32_t{0}, "name"sv,
                  "other"sv),
          message(FUSE_LINK, fuse_link_in{2}, "second"sv),
          message(FUSE_OPENDIR, std::uint64_t{0}),
          message(FUSE_READDIR, fuse_read_in{1, 0, 4096, 0, 0, 0, 0}),
          message(FUSE_READDIRPLUS, fuse_read_in{1, 2, 4096, 0, 0, 0, 0}),
          message(FUSE_RELEASEDIR, fuse_release_in{1, 0, 0, 0}),
          message(FUSE_FSYNCDIR, fuse_fsync_in{1, 0, 0}),
          message(FUSE_SETXATTR, SetxattrIn{3, 1, kSetxattrKillSetgid, 0}, "user.a"sv, "xyz"sv),
          message(FUSE_GETXATTR, fuse_getxattr_in{100, 0}, "user.a"sv),
          message(FUSE_LISTXATTR, fuse_getxattr_in{100, 0}),
          message(FUSE_REMOVEXATTR, "user.a"sv),
          message(FUSE_STATFS),
          message(FUSE_INTERRUPT, std::uint64_t{42}),
          message(FUSE_DESTROY)};
}

std::vector<std::string> requests_on_files() {
  fuse_lk_in lock{};
  lock.lk = {.start = 10, .end = 19, .type = F_WRLCK, .pid = 7};
  fuse_copy_file_range_in copy{};
  copy.fh_in = copy.fh_out = 1;
  copy.len = 10;
  fuse_setattr_in set{};
  set.valid = FATTR_SIZE | FATTR_MODE | FATTR_MTIME | FATTR_FH;
  set.size = 5000;
  set.mode = 0100600;
  return {
      message(FUSE_GETATTR, fuse_getattr_in{FUSE_GETATTR_FH, 0, 1}),
      message(FUSE_SETATTR, set),
      message(FUSE_OPEN, OpenIn{O_RDWR, kOpenKillPrivileges}),
      message(FUSE_CREATE, CreateIn{O_RDWR, 0100644, 022, 0}, "new"sv),
      message(kOpTmpFile, CreateIn{O_RDWR, 0100644, 022, 0}, "unused"sv),
      message(FUSE_IOCTL, IoctlIn{1, 0, static_cast<std::uint32_t>(FS_IOC_SETFLAGS), 0, 4, 0},
              std::uint32_t{FS_IMMUTABLE_FL}),
      message(FUSE_IOCTL, IoctlIn{1, 0, static_cast<std::uint32_t>(FS_IOC_FSSETXATTR), 0, 28, 0},
              fsxattr{}),
      message(FUSE_READ, fuse_read_in{1, 1, 4096, 0, 0, 0, 0}),
      message(FUSE_WRITE, fuse_write_in{1, 7, 4, 0, 0, 0, 0}, "abc"sv),
      message(FUSE_FLUSH, fuse_flush_in{1, 0, 0, 0}),
      message(FUSE_FSYNC, fuse_fsync_in{1, 1, 0}),
      message(FUSE_RELEASE, fuse_release_in{1, 0, 0, 0}),
      message(FUSE_FALLOCATE, fuse_fallocate_in{1, 0, 4096, 0, 0}),
      message(FUSE_COPY_FILE_RANGE, copy),
      message(kOpCopyFileRange64, copy),
      message(FUSE_LSEEK, fuse_lseek_in{1, 0, SEEK_DATA, 0}),
      message(FUSE_GETLK, lock),
      message(FUSE_SETLK, lock),
      message(FUSE_SETLKW, lock)};
}

/// Everything that an operation points to lies in the message.
struct Inside {
  ByteSpan bytes;
  void check(ByteSpan span) const {
    if (span.empty()) return;
    EXPECT_GE(span.data(), bytes.data());
    EXPECT_LE(span.data() + span.size(), bytes.data() + bytes.size());
  }
  void check(std::string_view text) const { check(bytes_of(text)); }
  template <typename Op>
  void operator()(const Op& o) const {
    if constexpr (requires { o.name; }) {
      check(o.name);
      EXPECT_FALSE(o.name.empty());
      EXPECT_LE(o.name.size(), kMaxName);
    }
    if constexpr (requires { o.new_name; }) check(o.new_name);
    if constexpr (requires { o.target; }) check(o.target);
    if constexpr (requires { o.value; }) check(o.value);
    if constexpr (requires { o.bytes; }) check(o.bytes);
    if constexpr (requires { o.entries; }) check(o.entries);
    if constexpr (requires { o.in; }) check(o.in);
  }
  void operator()(const op::Ioctl& o) const {
    check(o.in);
    if (flags_call_of(o.command) == FlagsCall::set) (void)taken(flags_asked(o.command, o.in));
  }
};

/// Whether a file system in memory has room for what is asked.
struct Fits {
  static constexpr std::uint64_t kMost = 1 << 20;
  template <typename Op>
  bool operator()(const Op& o) const {
    if constexpr (requires { o.offset; }) return o.offset <= kMost && length_of(o) <= kMost;
    return true;
  }
  bool operator()(const op::SetAttributes& o) const { return o.change.length.value_or(0) <= kMost; }
  bool operator()(const op::CopyRange& o) const {
    return o.range.offset <= kMost && o.range.length <= kMost;
  }
  template <typename Op>
  static std::uint64_t length_of(const Op& o) {
    if constexpr (requires { o.length; }) return o.length;
    return 0;
  }
};

class Mounted {
 public:
  Mounted() {
    for (const std::string& request : requests_on_names()) serve(bytes_of(request), true);
    for (const std::string& request : requests_on_files()) serve(bytes_of(request), true);
  }

  /// wide: what was agreed on of SETXATTR.
  bool serve(ByteSpan bytes, bool wide) {
    auto request = decode_header(bytes);
    if (!taken(request)) return false;
    request->wide_setxattr = wide;
    const auto operation = decode_operation(*request);
    if (!taken(operation)) return false;
    std::visit(Inside{bytes}, *operation);
    const std::string line = to_line(describe(*request, vfs_));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    if (!std::visit(Fits{}, *operation)) return true;
    Reply reply(nowhere_.get(), request->unique);
    server_.serve(*request, reply);
    const bool silent = std::holds_alternative<op::Forget>(*operation) ||
                        std::holds_alternative<op::BatchForget>(*operation) ||
                        std::holds_alternative<op::Interrupt>(*operation);
    EXPECT_NE(reply.answered(), silent) << name_of_opcode(request->opcode);
    return true;
  }

 private:
  const UniqueFd nowhere_{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  MemoryVfs vfs_{MemoryVfs::Options{}};
  BackingTable backing_{nowhere_.get(), nullptr};
  Server server_{vfs_, backing_, {.passthrough = false, .flags = true}};
};

TEST(Fuzz, Requests) {
  Fuzz fuzz("fuse");
  for (const std::string& request : requests_on_names()) fuzz.add(request);
  for (const std::string& request : requests_on_files()) fuzz.add(request);
  fuzz.set_allowance(1 << 20);  // a file system in memory allocates what is written
  auto mounted = std::make_unique<Mounted>();
  std::uint64_t fed = 0;
  fuzz.run([&](ByteSpan bytes) {
    // What was made is forgotten, so that it does not grow.
    if (++fed % 4096 == 0) mounted = std::make_unique<Mounted>();
    std::vector<std::byte> right(bytes.begin(), bytes.end());
    if (right.size() >= sizeof(InHeader))
      store_little(right.data(), static_cast<std::uint32_t>(right.size()));
    const bool as_it_is = mounted->serve(bytes, true);
    return mounted->serve(right, fed % 2 == 0) || as_it_is;
  });
}

// ---- INIT ----

TEST(Fuzz, Negotiation) {
  Fuzz fuzz("fuse-init");
  InitIn in{7, 45, 1 << 17, ~0u, ~0u, {}};
  fuzz.add_plain(in);
  in.flags = 0;
  fuzz.add_plain(in);
  std::uint64_t wanted = 0;
  for (const InitFlag& flag : init_flags())
    if (flag.wanted) wanted |= flag.bit;
  fuzz.run([&](ByteSpan bytes) {
    InitIn heard{};
    std::ranges::copy(bytes.first(std::min(bytes.size(), sizeof heard)),
                      std::as_writable_bytes(std::span(&heard, 1)).begin());
    const auto agreed =
        negotiate(heard, {.passthrough = bytes.size() % 2 == 0, .max_write = heard.unused[0]});
    if (!taken(agreed)) return false;
    const InitOut& out = agreed->answer;
    const std::uint64_t taken_flags = out.flags | std::uint64_t{out.flags2} << 32;
    const std::uint64_t offered = heard.flags | std::uint64_t{heard.flags2} << 32;
    EXPECT_EQ(taken_flags & ~(offered & wanted), 0u);
    EXPECT_EQ(out.max_write % 4096, 0u);
    EXPECT_GE(out.max_write, 4096u);
    EXPECT_EQ(agreed->max_write, out.max_write);
    return true;
  });
}

// ---- The holder ----

/// Sends it as one message, with up to two descriptors.
void send_raw(int socket, ByteSpan bytes, std::size_t descriptors) {
  const int both[2] = {STDERR_FILENO, STDERR_FILENO};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof both)] = {};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (descriptors != 0) {
    header.msg_control = room;
    header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* const control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    std::memcpy(CMSG_DATA(control), both, descriptors * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket, &header, 0), static_cast<ssize_t>(bytes.size()));
}

int lowest_free_descriptor() {
  const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return next.get();
}

TEST(Fuzz, MessagesOfTheHolder) {
  Fuzz fuzz("fuse-holder");
  HolderMessage message;
  message.kind = HolderMessage::welcome;
  message.number = 3;
  std::snprintf(message.text, sizeof message.text, "killed by signal 9");
  fuzz.add_plain(message);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const int free_before = lowest_free_descriptor();
  fuzz.run([&](ByteSpan bytes) {
    if (bytes.empty()) return false;  // as the end of the connection
    const std::size_t descriptors = fuzz.rng().below(3);
    send_raw(one.get(), bytes, descriptors);
    HolderMessage got;
    int fd = -1;
    const int outcome = receive_message(other.get(), &got, &fd, MSG_DONTWAIT);
    const UniqueFd received(fd);
    EXPECT_EQ(outcome == 1, bytes.size() >= sizeof got &&
                                load_little<std::uint32_t>(bytes.data()) == HolderMessage::kMagic &&
                                bytes.size() == sizeof got);
    if (outcome != 1) {
      EXPECT_EQ(fd, -1);
    }
    if (outcome == 1) {
      EXPECT_LT(::strnlen(got.text, sizeof got.text), sizeof got.text);
    }
    const bool kept = fd >= 0;
    EXPECT_EQ(lowest_free_descriptor() != free_before, kept);
    return outcome == 1;
  });
}

KeptMount some_mount() {
  KeptMount kept;
  kept.mount.mountpoint = "/mnt/starlane";
  kept.mount.device_number = "0:45";
  kept.max_write = 1 << 20;
  kept.limitations = {"one", "two"};
  kept.bound = {"/workspace"};
  return kept;
}

TEST(Fuzz, TheMountInTheLedger) {
  Fuzz fuzz("fuse-mount");
  fuzz.add(ByteSpan(encode(some_mount())));
  fuzz.add(ByteSpan(encode(KeptMount{})));
  const UniqueFd fd = client::Ledger::create().value();
  const auto ledger = client::Ledger::open(fd.get()).value();
  fuzz.run([&](ByteSpan bytes) {
    EXPECT_TRUE(ledger->put({client::Ledger::Kind::mount}, bytes).ok());
    const auto kept = kept_mount(ledger.get());
    if (!taken(kept)) return false;
    const auto again = encode(*kept);
    EXPECT_TRUE(ledger->put({client::Ledger::Kind::mount}, again).ok());
    EXPECT_EQ(encode(*kept_mount(ledger.get())), again);
    return true;
  });
}

}  // namespace
}  // namespace starlane::fuse
