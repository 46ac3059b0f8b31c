// What a holder and its daemon say to each other, byte by byte, and what passes from one daemon to
// the next. The processes themselves: tests/test_holder.py.
#include "fuse/holder/holder.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "common/hex.h"
#include "fuse/holder/held.h"
#include "fuse/kept_mount.h"
#include "fuse/suspects.h"

namespace starlane::fuse {
namespace {

TEST(HolderMessage, GoldenBytes) {
  HolderMessage message;
  message.kind = HolderMessage::welcome;
  message.item = 11;
  message.number = 0x0102;
  std::strcpy(message.text, "signal 11");
  const std::string bytes = hex_of(message);
  EXPECT_EQ(bytes.substr(0, 52),
            "534c4831"
            "0200"
            "0b00"
            "0201000000000000"
            "7369676e616c203131"
            "00");
  EXPECT_EQ(bytes.find_first_not_of('0', 54), std::string::npos);
  EXPECT_EQ(bytes.size(), 512U);
}

TEST(HolderMessage, NumbersStay) {
  EXPECT_EQ(HolderMessage::given, 1);
  EXPECT_EQ(HolderMessage::leave, 3);
  EXPECT_EQ(HolderMessage::keep, 16);
  EXPECT_EQ(HolderMessage::ready, 17);
  EXPECT_EQ(HolderMessage::failed, 18);
  EXPECT_EQ(HolderMessage::beat, 19);
  EXPECT_EQ(static_cast<int>(HeldItem::device), 0);
  EXPECT_EQ(static_cast<int>(HeldItem::ledger), 1);
  EXPECT_EQ(static_cast<int>(HeldItem::arena), 2);
  EXPECT_EQ(static_cast<int>(HeldItem::cache), 3);
  EXPECT_EQ(static_cast<int>(HeldItem::cache_view), 4);
  EXPECT_EQ(static_cast<int>(HeldItem::control), 5);
}

class Channel : public ::testing::Test {
 protected:
  Channel() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
  }
  int receive(int flags = MSG_DONTWAIT) {
    fd_ = -1;
    return receive_message(ours_.get(), &got_, &fd_, flags);
  }

  UniqueFd ours_, theirs_;
  HolderMessage got_;
  int fd_ = -1;
};

TEST_F(Channel, CarriesADescriptor) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const UniqueFd out(pipe[0]), in(pipe[1]);
  HolderMessage message;
  message.kind = HolderMessage::keep;
  message.item = 2;
  ASSERT_TRUE(send_message(theirs_.get(), message, in.get(), 0));
  ASSERT_EQ(receive(), 1);
  const UniqueFd received(fd_);
  EXPECT_EQ(got_.item, 2);
  ASSERT_EQ(::write(received.get(), "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(out.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(Channel, DropsWhatMakesNoSenseAndTellsTheEnd) {
  EXPECT_EQ(receive(), -1) << "nothing yet";
  ASSERT_EQ(::send(theirs_.get(), "short", 5, 0), 5);
  EXPECT_EQ(receive(), -1);
  HolderMessage message;
  message.magic ^= 1;
  ASSERT_TRUE(send_message(theirs_.get(), message, theirs_.get(), 0));
  EXPECT_EQ(receive(), -1);
  EXPECT_EQ(fd_, -1);
  message.magic ^= 1;
  std::memset(message.text, 'x', sizeof message.text);  // without an end
  ASSERT_TRUE(send_message(theirs_.get(), message, -1, 0));
  ASSERT_EQ(receive(), 1);
  EXPECT_EQ(std::strlen(got_.text), sizeof got_.text - 1);
  theirs_.reset();
  EXPECT_EQ(receive(), 0);
  EXPECT_FALSE(send_message(ours_.get(), message, -1, 0));
}

TEST(KeptMount, GoldenBytesAndBack) {
  KeptMount kept;
  kept.mount = {"/mnt", "0:45", true, false};
  kept.passthrough = true;
  kept.kernel_checks_flags = true;
  kept.max_write = 0x100000;
  kept.heard.major = 7;
  kept.heard.minor = 45;
  kept.heard.max_readahead = 0x20000;
  kept.heard.flags = 1;
  kept.heard.flags2 = 2;
  kept.limitations = {"slow"};
  kept.bound = {"/a", "/b"};
  EXPECT_EQ(hex(encode(kept)),
            "01"
            "00"
            "01"
            "00"
            "01"
            "00"
            "00001000"
            "07000000"
            "2d000000"
            "00000200"
            "01000000"
            "02000000"
            "04002f6d6e74"
            "0400303a3435"
            "01000400736c6f77"
            "020002002f6102002f62");
  auto ledger =
      std::move(client::Ledger::open(std::move(client::Ledger::create()).value().get())).value();
  EXPECT_EQ(kept_mount(ledger.get()).code(), Errc::invalid) << "it does not say";
  auto bytes = encode(kept);
  ASSERT_TRUE(ledger->put({client::Ledger::Kind::mount}, bytes).ok());
  const auto again = kept_mount(ledger.get());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(encode(*again), bytes);
  bytes.resize(bytes.size() - 3);
  ASSERT_TRUE(ledger->put({client::Ledger::Kind::mount}, bytes).ok());
  EXPECT_EQ(kept_mount(ledger.get()).code(), Errc::invalid) << "cut short";
}

TEST(Suspects, AreGivenUpAfterThreeCrashesInARow) {
  auto ledger =
      std::move(client::Ledger::open(std::move(client::Ledger::create()).value().get())).value();
  {
    Suspects first(ledger.get(), true);  // one crash has happened: the kernel sends again
    EXPECT_TRUE(first.begin(1));
    EXPECT_TRUE(first.begin(2));
    first.end(2);
  }
  EXPECT_TRUE(Suspects(ledger.get(), true).begin(1));
  for (int kills = 0; kills < 5; ++kills)  // from outside: nobody's fault
    EXPECT_TRUE(Suspects(ledger.get(), false).begin(1));
  Suspects last(ledger.get(), true);
  EXPECT_FALSE(last.begin(1));
  EXPECT_TRUE(last.begin(2));
  EXPECT_TRUE(last.begin(3));
  last.end(1);
  EXPECT_TRUE(last.begin(1)) << "it was answered: a new one with its number";
  Suspects none(nullptr, true);
  EXPECT_TRUE(none.begin(1));
  none.end(1);
}

}  // namespace
}  // namespace starlane::fuse
