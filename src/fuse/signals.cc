#include "fuse/signals.h"

#include <charconv>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace starlane::fuse {
namespace {

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

// Their default is to stop, to go on, or nothing.
const std::uint64_t kHarmless = bit(SIGCHLD) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGCONT) |
                                bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// A set of signals in the status file: a name, a tab, 16 hexadecimal digits.
std::optional<std::uint64_t> set_of(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = status.substr(at + name.size(), 16);
  std::uint64_t set = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), set, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return set;
}

}  // namespace

WaitingSignals signals_in(std::string_view status) {
  const auto own = set_of(status, "\nSigPnd:\t"), shared = set_of(status, "\nShdPnd:\t"),
             blocked = set_of(status, "\nSigBlk:\t"), ignored = set_of(status, "\nSigIgn:\t"),
             caught = set_of(status, "\nSigCgt:\t");
  if (!own || !shared || !blocked || !ignored || !caught) return {.fatal = true};
  const std::uint64_t waiting = (*own | *shared) & ~*blocked & ~*ignored;
  return {.fatal = (waiting & ~*caught & ~kHarmless) != 0, .caught = (waiting & *caught) != 0};
}

WaitingSignals signals_waiting_for(std::uint32_t thread) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/status");
  std::ostringstream text;
  text << file.rdbuf();
  return signals_in(text.str());
}

}  // namespace starlane::fuse
