// What the kernel's text about a thread says of the signals that wait for it.
#include "fuse/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace starlane::fuse {
namespace {

std::string bits(std::initializer_list<int> signals) {
  std::uint64_t set = 0;
  for (const int signal : signals) set |= std::uint64_t{1} << (signal - 1);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(set));
  return text;
}

using Set = std::initializer_list<int>;

WaitingSignals waiting(Set own, Set shared, Set blocked, Set ignored, Set caught) {
  return signals_in("Name:\tx\nSigQ:\t0/95\nSigPnd:\t" + bits(own) + "\nShdPnd:\t" + bits(shared) +
                    "\nSigBlk:\t" + bits(blocked) + "\nSigIgn:\t" + bits(ignored) + "\nSigCgt:\t" +
                    bits(caught) + "\nCapInh:\t0\n");
}

TEST(WaitingSignals, WhatEndsTheProcessIsFatal) {
  EXPECT_TRUE(waiting({SIGKILL}, {}, {}, {}, {}).fatal);
  EXPECT_TRUE(waiting({}, {SIGKILL}, {}, {}, {}).fatal);
  EXPECT_TRUE(waiting({}, {SIGINT}, {}, {}, {}).fatal);
  EXPECT_TRUE(waiting({}, {SIGALRM, SIGUSR1}, {}, {}, {SIGALRM}).fatal);
}

TEST(WaitingSignals, WhatIsCaughtIsNot) {
  EXPECT_FALSE(waiting({}, {SIGINT}, {}, {}, {SIGINT}).fatal);
  EXPECT_TRUE(waiting({}, {SIGINT}, {}, {}, {SIGINT}).caught);
  EXPECT_TRUE(waiting({64}, {}, {}, {}, {64}).caught);
}

TEST(WaitingSignals, WhatIsBlockedIgnoredOrHarmlessCountsForNothing) {
  const WaitingSignals none[] = {
      waiting({}, {}, {}, {}, {SIGINT}),
      waiting({SIGTERM}, {SIGINT}, {SIGTERM, SIGINT}, {}, {SIGINT}),
      waiting({}, {SIGPIPE}, {}, {SIGPIPE}, {}),
      waiting({}, {SIGSTOP, SIGTSTP, SIGCONT, SIGCHLD, SIGURG, SIGWINCH}, {}, {}, {})};
  for (const WaitingSignals& each : none) EXPECT_FALSE(each.fatal || each.caught);
}

TEST(WaitingSignals, OfWhomNothingIsKnownIsNotWaitedFor) {
  EXPECT_TRUE(signals_in("").fatal);
  EXPECT_TRUE(signals_in("\nSigPnd:\t00").fatal);
  EXPECT_TRUE(signals_waiting_for(0x7ffffff0).fatal);
  EXPECT_FALSE(signals_waiting_for(static_cast<std::uint32_t>(::gettid())).fatal);
}

}  // namespace
}  // namespace starlane::fuse
