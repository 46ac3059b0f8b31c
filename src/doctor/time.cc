// Clocks: how dear a reading is, and whether file times agree between machines.
#include <sys/timex.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/clock.h"
#include "doctor/host.h"

namespace starlane::doctor {
namespace {

constexpr const char* kTopic = "time";

double reading_ns() {
  constexpr int kTimes = 10'000;
  const Nanoseconds began = system_clock().boot();
  for (int i = 0; i < kTimes; ++i) (void)system_clock().boot();
  return static_cast<double>((system_clock().boot() - began).count()) / kTimes;
}

void check_source(const Host& host, Checks& out) {
  const auto source = host.text("sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return;
  static constexpr std::array kFast{"tsc", "kvm-clock", "arch_sys_counter",
                                    "hyperv_clocksource_tsc_page"};
  const bool fast = std::ranges::find(kFast, *source) != kFast.end();
  Check check{kTopic, "clock source", fast ? Verdict::ok : Verdict::warning, *source, ""};
  if (host.is_this_machine()) {
    char cost[48];
    std::snprintf(cost, sizeof cost, ", %.0f ns a reading", reading_ns());
    check.found += cost;
  }
  if (!fast)
    check.remedy =
        "Let the kernel use tsc (on a virtual machine kvm-clock): each operation reads the clock "
        "a few times.";
  out.push_back(check);
}

void check_synchronised(Checks& out) {
  timex state{};
  const int result = ::adjtimex(&state);
  Check check{kTopic, "synchronised", Verdict::ok, "yes", ""};
  if (result == TIME_ERROR || (state.status & STA_UNSYNC) != 0) {
    check.verdict = Verdict::warning;
    check.found = "the kernel's clock is not disciplined";
    check.remedy =
        "Run chrony or systemd-timesyncd where several hosts share files: times of files come from "
        "the host that wrote (leases do not depend on it).";
  }
  out.push_back(check);
}

}  // namespace

void check_time(const Host& host, Checks& out) {
  check_source(host, out);
  if (host.is_this_machine()) check_synchronised(out);
}

}  // namespace starlane::doctor
