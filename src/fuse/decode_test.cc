#include "fuse/decode.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>

#include <string>
#include <vector>

#include "fuse/file_flags.h"
#include "fuse/negotiate.h"

namespace starlane::fuse {
namespace {

template <typename... Parts>
std::vector<std::byte> message(std::uint32_t opcode, const Parts&... parts) {
  std::vector<std::byte> bytes(sizeof(InHeader));
  [[maybe_unused]] const auto append = [&](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      const std::string_view text(part);
      const auto span = bytes_of(text);
      bytes.insert(bytes.end(), span.begin(), span.end());
    } else {
      const auto span = std::as_bytes(std::span(&part, 1));
      bytes.insert(bytes.end(), span.begin(), span.end());
    }
  };
  (append(parts), ...);
  InHeader header{};
  header.len = static_cast<std::uint32_t>(bytes.size());
  header.opcode = opcode;
  header.unique = 42;
  header.nodeid = client::Node{3, 2, InodeId(77)}.pack();
  header.uid = 1000;
  store_little(bytes.data(), header);
  return bytes;
}

Result<Operation> decode(const std::vector<std::byte>& bytes) {
  auto request = decode_header(bytes);
  if (!request.ok()) return request.status();
  return decode_operation(request.value());
}

using std::string_view_literals::operator""sv;

TEST(Decode, HeaderCarriesNodeAndCaller) {
  auto bytes = message(FUSE_READLINK);
  const auto request = decode_header(bytes);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request.value().node, (client::Node{3, 2, InodeId(77)}));
  EXPECT_EQ(request.value().caller.uid, 1000U);
  EXPECT_EQ(request.value().caller.unique, 42U);
}

TEST(Decode, ResendBitIsNotPartOfTheCallersNumber) {
  auto bytes = message(FUSE_READLINK);
  auto header = load_little<InHeader>(bytes.data());
  header.unique |= kUniqueResend;
  store_little(bytes.data(), header);
  const auto request = decode_header(bytes);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request.value().unique, 42U | kUniqueResend);
  EXPECT_EQ(request.value().caller.unique, 42U);
}

TEST(Decode, LengthMustBeWhatWasRead) {
  auto bytes = message(FUSE_LOOKUP, "name\0"sv);
  bytes.push_back(std::byte{0});
  EXPECT_EQ(decode(bytes).code(), Errc::protocol);
  bytes.resize(20);
  EXPECT_EQ(decode(bytes).code(), Errc::protocol);
}

TEST(Decode, NamesAreChecked) {
  EXPECT_TRUE(decode(message(FUSE_LOOKUP, "name\0"sv)).ok());
  EXPECT_EQ(decode(message(FUSE_LOOKUP, "name"sv)).code(), Errc::invalid);
  EXPECT_EQ(decode(message(FUSE_LOOKUP, "\0"sv)).code(), Errc::invalid);
  EXPECT_EQ(decode(message(FUSE_LOOKUP, "a/b\0"sv)).code(), Errc::invalid);
  EXPECT_EQ(decode(message(FUSE_LOOKUP, "..\0"sv)).code(), Errc::invalid);
  const std::string longest(255, 'x');
  EXPECT_TRUE(decode(message(FUSE_LOOKUP, longest, "\0"sv)).ok());
  EXPECT_EQ(decode(message(FUSE_LOOKUP, longest + "x", "\0"sv)).code(), Errc::name_too_long);
}

TEST(Decode, RenameTakesBothNames) {
  const fuse_rename2_in in{client::Node{3, 0, InodeId(9)}.pack(), 2, 0};
  const auto bytes = message(FUSE_RENAME2, in, "from\0to\0"sv);
  const auto operation = decode(bytes);
  ASSERT_TRUE(operation.ok());
  const auto& rename = std::get<op::Rename>(operation.value());
  EXPECT_EQ(rename.name, "from");
  EXPECT_EQ(rename.new_name, "to");
  EXPECT_EQ(rename.new_parent.inode, InodeId(9));
  EXPECT_EQ(rename.flags, 2U);
  EXPECT_EQ(decode(message(FUSE_RENAME2, in, "from\0to"sv)).code(), Errc::invalid);
}

TEST(Decode, AFileWithoutANameComesWithOneThatMeansNothing) {
  const CreateIn in{2, 0100600, 022, 0};
  const auto bytes = message(kOpTmpFile, in, "/\0"sv);
  const auto operation = decode(bytes);
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(std::get<op::CreateUnnamed>(operation.value()).mode, 0100600U);
  EXPECT_EQ(std::get<op::CreateUnnamed>(operation.value()).flags, 2U);
}

TEST(Decode, IoctlsOfFlags) {
  const IoctlIn in{1, 0, static_cast<std::uint32_t>(FS_IOC_SETFLAGS), 0, 4, 0};
  const std::uint32_t immutable = FS_IMMUTABLE_FL;
  const auto bytes = message(FUSE_IOCTL, in, immutable);
  const auto operation = decode(bytes);
  ASSERT_TRUE(operation.ok());
  const auto& ioctl = std::get<op::Ioctl>(operation.value());
  EXPECT_EQ(flags_call_of(ioctl.command), FlagsCall::set);
  EXPECT_EQ(*flags_asked(ioctl.command, ioctl.in), client::kImmutable);
  EXPECT_EQ(decode(message(FUSE_IOCTL, in, "ab"sv)).code(), Errc::invalid);
  const std::uint32_t other = FS_NODUMP_FL;
  EXPECT_EQ(flags_asked(FS_IOC_SETFLAGS, std::as_bytes(std::span(&other, 1))).code(),
            Errc::unsupported);
  fsxattr extended{};
  extended.fsx_xflags = FS_XFLAG_APPEND;
  const ByteSpan as_bytes = std::as_bytes(std::span(&extended, 1));
  EXPECT_EQ(*flags_asked(FS_IOC_FSSETXATTR, as_bytes), client::kAppendOnly);
  EXPECT_EQ(flags_asked(FS_IOC_FSSETXATTR, as_bytes.first(20)).code(), Errc::invalid);
  EXPECT_EQ(flags_answer(FS_IOC_FSGETXATTR, client::kAppendOnly).size, sizeof extended);
  EXPECT_EQ(flags_answer(FS_IOC_GETFLAGS, 0).size, sizeof(std::uint32_t));
  EXPECT_EQ(flags_call_of(0x5401), std::nullopt);
}

TEST(Decode, LocksHaveARangeAndAKnownType) {
  fuse_lk_in in{};
  in.fh = 5;
  in.owner = 6;
  in.lk = {.start = 10, .end = 19, .type = F_WRLCK, .pid = 7};
  auto operation = decode(message(FUSE_SETLK, in));
  ASSERT_TRUE(operation.ok());
  const client::LockRequest set = std::get<op::SetLock>(operation.value()).request;
  EXPECT_EQ(set.handle, 5U);
  EXPECT_EQ(set.owner, 6U);
  EXPECT_EQ(set.lock.kind, client::LockKind::record);
  EXPECT_EQ(set.lock.type, client::LockType::write);
  EXPECT_EQ(set.lock.start, 10U);
  EXPECT_EQ(set.lock.end, 19U);
  EXPECT_EQ(set.lock.pid, 7U);
  in.lk_flags = FUSE_LK_FLOCK;
  operation = decode(message(FUSE_GETLK, in));
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(std::get<op::TestLock>(operation.value()).request.lock.kind, client::LockKind::flock);
  in.lk.type = 77;
  EXPECT_EQ(decode(message(FUSE_SETLKW, in)).code(), Errc::invalid);
  in.lk.type = F_RDLCK;
  in.lk.start = 20;
  EXPECT_EQ(decode(message(FUSE_SETLKW, in)).code(), Errc::invalid);
  in.lk.end = std::uint64_t{1} << 63;
  EXPECT_EQ(decode(message(FUSE_SETLKW, in)).code(), Errc::invalid);
}

TEST(Decode, SetxattrOfBothLengths) {
  const auto wide =
      message(FUSE_SETXATTR, SetxattrIn{3, 2, kSetxattrKillSetgid, 0}, "user.a\0xyz"sv);
  auto request = decode_header(wide);
  auto operation = decode_operation(request.value());
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(std::get<op::SetXattr>(operation.value()).value, "xyz");
  EXPECT_EQ(std::get<op::SetXattr>(operation.value()).options.flags, 2U);
  EXPECT_TRUE(std::get<op::SetXattr>(operation.value()).options.kill_setgid);
  const auto narrow = message(FUSE_SETXATTR, std::uint32_t{3}, std::uint32_t{1}, "user.a\0xyz"sv);
  request = decode_header(narrow);
  request.value().wide_setxattr = false;
  operation = decode_operation(request.value());
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(std::get<op::SetXattr>(operation.value()).name, "user.a");
  EXPECT_EQ(std::get<op::SetXattr>(operation.value()).value, "xyz");
  EXPECT_FALSE(std::get<op::SetXattr>(operation.value()).options.kill_setgid);
}

TEST(Decode, WriteNeedsAllItsBytes) {
  fuse_write_in in{};
  in.fh = 5;
  in.offset = 4096;
  in.size = 3;
  const auto bytes = message(FUSE_WRITE, in, "abc"sv);
  const auto operation = decode(bytes);
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(text_of(std::get<op::Write>(operation.value()).bytes), "abc");
  in.size = 4;
  EXPECT_EQ(decode(message(FUSE_WRITE, in, "abc"sv)).code(), Errc::invalid);
  in.size = 3;
  in.offset = INT64_MAX - 1;
  EXPECT_EQ(decode(message(FUSE_WRITE, in, "abc"sv)).code(), Errc::file_too_large);
}

TEST(Decode, CopyIsCutToOneGibibyte) {
  fuse_copy_file_range_in in{};
  in.len = 9_GiB;
  const auto operation = decode(message(kOpCopyFileRange64, in));
  ASSERT_TRUE(operation.ok());
  EXPECT_EQ(std::get<op::CopyRange>(operation.value()).range.length, 1_GiB);
  EXPECT_TRUE(std::get<op::CopyRange>(operation.value()).wide_answer);
}

TEST(Decode, BatchForgetCountIsBounded) {
  const fuse_batch_forget_in in{2, 0};
  const fuse_forget_one one{7, 1};
  EXPECT_EQ(
      std::get<op::BatchForget>(decode(message(FUSE_BATCH_FORGET, in, one, one)).value()).size(),
      2U);
  EXPECT_EQ(decode(message(FUSE_BATCH_FORGET, in, one)).code(), Errc::invalid);
  const fuse_batch_forget_in many{UINT32_MAX, 0};
  EXPECT_EQ(decode(message(FUSE_BATCH_FORGET, many, one)).code(), Errc::invalid);
}

TEST(Decode, UnknownOperationsAreNotImplemented) {
  for (const std::uint32_t opcode : {0U, 7U, 19U, kOpStatx, kOpSyncFs, 54U, 4096U, ~0U}) {
    EXPECT_EQ(decode(message(opcode, std::uint64_t{0}, std::uint64_t{0})).code(),
              Errc::not_implemented)
        << opcode;
  }
}

TEST(Negotiate, TakesOnlyWhatIsOfferedAndWanted) {
  InitIn in{};
  in.major = 7;
  in.minor = 45;
  in.flags = in.flags2 = ~0U;
  auto agreed = negotiate(in, {});
  ASSERT_TRUE(agreed.ok());
  const std::uint64_t taken =
      agreed.value().answer.flags | std::uint64_t{agreed.value().answer.flags2} << 32;
  EXPECT_EQ(taken & FUSE_WRITEBACK_CACHE, 0U);
  EXPECT_EQ(taken & FUSE_EXPORT_SUPPORT, 0U);
  EXPECT_NE(taken & kInitPassthrough, 0U);
  EXPECT_TRUE(agreed.value().passthrough);
  EXPECT_EQ(agreed.value().answer.max_background, 65535U);
  EXPECT_EQ(agreed.value().answer.max_pages, 256U);

  EXPECT_FALSE(negotiate(in, {.passthrough = false}).value().passthrough);
  in.flags &= ~static_cast<std::uint32_t>(kInitExt);  // then flags2 means nothing
  agreed = negotiate(in, {});
  EXPECT_EQ(agreed.value().answer.flags2, 0U);
  EXPECT_FALSE(agreed.value().passthrough);
  in.minor = 20;
  EXPECT_EQ(negotiate(in, {}).code(), Errc::protocol);
}

TEST(Negotiate, EveryFlagIsDecidedOnce) {
  std::uint64_t seen = 0;
  for (const InitFlag& flag : init_flags()) {
    EXPECT_EQ(seen & flag.bit, 0U) << flag.name;
    EXPECT_FALSE(flag.reason.empty());
    seen |= flag.bit;
  }
}

}  // namespace
}  // namespace starlane::fuse
