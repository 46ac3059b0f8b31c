#include "fuse/holder/held.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/errno.h"
#include "common/thread_pool.h"

namespace starlane::fuse {
namespace {

constexpr int kBeatMs = 500;

void signal_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(fd, &one, sizeof one);
}

void set_text(HolderMessage& message, const std::string& text) {
  std::memcpy(message.text, text.data(), std::min(text.size(), sizeof message.text - 1));
}

}  // namespace

bool Held::expected() { return std::getenv(kHolderVariable) != nullptr; }

Result<std::unique_ptr<Held>> Held::join() {
  const char* variable = std::getenv(kHolderVariable);
  if (variable == nullptr) return std::unique_ptr<Held>();
  const int channel = std::atoi(variable);
  ::unsetenv(kHolderVariable);
  ::prctl(PR_SET_NAME, "starlane");  // it may have been started from a descriptor
  if (channel <= 2 || ::fcntl(channel, F_SETFD, FD_CLOEXEC) != 0)
    return Status(Errc::invalid,
                  std::string(kHolderVariable) + " is for the holder of a mount only");
  std::unique_ptr<Held> held(new Held(channel));
  SL_TRY(held->receive_all());
  held->thread_ = std::thread([raw = held.get()] { raw->run(); });
  return held;
}

Held::Held(int channel)
    : channel_(channel),
      end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      holder_(::getppid()),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Held::~Held() {
  signal_event(stop_.get());
  if (thread_.joinable()) thread_.join();
}

Status Held::receive_all() {
  for (;;) {
    HolderMessage message;
    int fd = -1;
    const int got = receive_message(channel_.get(), &message, &fd, 0);
    UniqueFd received(fd);
    if (got != 1) return Status(Errc::unavailable, "the holder of the mount is gone");
    if (message.kind == HolderMessage::given && message.item < kHeldItems)
      items_[message.item] = std::move(received);
    if (message.kind != HolderMessage::welcome) continue;
    generation_ = message.number;
    cause_ = message.text;
    signal_ = message.item;
    return {};
  }
}

bool Held::after_crash() const {
  constexpr int kOwn[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  return std::find(std::begin(kOwn), std::end(kOwn), signal_) != std::end(kOwn);
}

Status Held::keep(HeldItem item, int fd, const std::string& fact) {
  HolderMessage message;
  set_text(message, fact);
  message.kind = HolderMessage::keep;
  message.item = static_cast<std::uint16_t>(item);
  if (!send_message(channel_.get(), message, fd, 0))
    return system_error("the holder of the mount is gone", errno);
  return {};
}

void Held::send(std::uint16_t kind, const std::string& text) {
  HolderMessage message;
  message.kind = kind;
  set_text(message, text);
  send_message(channel_.get(), message, -1, 0);  // a holder that is gone is noticed by `listen`
}

void Held::ready() { send(HolderMessage::ready, {}); }
void Held::failed(const std::string& sentence) { send(HolderMessage::failed, sentence); }

void Held::check_with(std::function<void()> check) {
  MutexLock lock(m_);
  check_ = std::move(check);
}

bool Held::another_comes() const {
  MutexLock lock(m_);
  return another_comes_;
}

void Held::run() {
  name_this_thread("sl-held");
  for (bool listening = true;;) {
    pollfd waiting[2] = {{stop_.get(), POLLIN, 0}, {listening ? channel_.get() : -1, POLLIN, 0}};
    ::poll(waiting, 2, kBeatMs);
    if (waiting[0].revents != 0) return;
    if (waiting[1].revents != 0) {
      listen();
      listening = (waiting[1].revents & POLLHUP) == 0;
      continue;
    }
    {
      MutexLock lock(m_);
      if (check_) check_();
    }
    send(HolderMessage::beat, {});
  }
}

void Held::listen() {
  HolderMessage message;
  int fd = -1;
  const int got = receive_message(channel_.get(), &message, &fd, MSG_DONTWAIT);
  const UniqueFd unexpected(fd);
  if (got < 0) return;
  if (got == 1 && message.kind != HolderMessage::leave) return;
  {
    MutexLock lock(m_);
    another_comes_ = got == 1;
  }
  signal_event(end_.get());
}

}  // namespace starlane::fuse
