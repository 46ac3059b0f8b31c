#include "cli/watch/consoles.h"

#include <csignal>
#include <ctime>

namespace starlane::cli {
namespace {

Status nobody(const std::string& where) {
  return Status(Errc::unavailable, "nothing of " + where +
                                       " is running; start it with `starlane up` (or give --at "
                                       "HOST:PORT, where --metrics serves)");
}

}  // namespace

Result<std::vector<wire::Shown>> Consoles::places() const {
  if (!at_.empty()) return std::vector<wire::Shown>{{at_, at_}};
  const wire::Site site = SL_TRY(program_.site());
  return wire::consoles_of(site);
}

Result<Page> Consoles::metrics() const {
  Page all;
  Status last = nobody(at_.empty() ? program_.globals().directory : at_);
  const std::vector<wire::Shown> shown = SL_TRY(places());
  for (const wire::Shown& one : shown) {
    const Result<std::string> text = wire::ask_console(one.place, "/metrics");
    if (text.ok()) SL_TRY(all.add(*text));
  }
  if (all.empty()) return last;
  return all;
}

Result<std::vector<Consoles::Answer>> Consoles::ask(const std::string& target,
                                                    const std::string& method) const {
  std::vector<Answer> answers;
  Status refused = nobody(at_.empty() ? program_.globals().directory : at_);
  const std::vector<wire::Shown> shown = SL_TRY(places());
  for (const wire::Shown& one : shown) {
    const Result<std::string> text = wire::ask_console(one.place, target, method);
    if (text.ok()) answers.push_back({one.name, *text});
    if (text.code() == Errc::invalid) refused = text.status();
    if (text.code() == Errc::not_found && refused.code() == Errc::unavailable)
      refused = Status(Errc::unavailable, "no mount of this site runs on this machine");
  }
  if (answers.empty()) return refused;
  return answers;
}

bool sleep_or_stop(Nanoseconds duration) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const Deadline until = Deadline::after(duration);
  for (;;) {
    const Nanoseconds left = until.left();
    const timespec time{static_cast<time_t>(left.count() / 1'000'000'000),
                        static_cast<long>(left.count() % 1'000'000'000)};
    if (::sigtimedwait(&set, nullptr, &time) > 0) return false;
    if (until.passed()) return true;
  }
}

}  // namespace starlane::cli
