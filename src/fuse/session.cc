#include "fuse/session.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "common/errno.h"
#include "common/log.h"
#include "common/trace.h"
#include "fuse/decode.h"
#include "fuse/kept_mount.h"
#include "fuse/watch/describe.h"

namespace starlane::fuse {
namespace {

using namespace std::chrono_literals;

// What a user may still be doing when the mount is taken away gets so long to end by itself.
constexpr auto kGrace = 300ms;
// More threads than that serve only where requests wait.
constexpr std::size_t kPopulated = 64;

bool urgent(ByteSpan bytes) {
  const auto request = decode_header(bytes);
  if (!request.ok()) return true;
  const std::uint32_t opcode = request.value().opcode;
  return opcode == FUSE_INTERRUPT || opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

bool has_no_answer(std::uint32_t opcode) {
  return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

}  // namespace

Session::Session(client::Vfs& vfs, const SessionOptions& options, Mount mount)
    : vfs_(vfs),
      options_(options),
      mount_(std::move(mount)),
      notifier_(mount_.device()),
      backing_(mount_.device(), options.ledger),
      suspects_(options.ledger, options.after_crash) {}

Session::~Session() { static_cast<void>(stop()); }

Result<std::unique_ptr<Session>> Session::start(client::Vfs& vfs, const SessionOptions& options) {
  std::optional<KeptMount> left;
  if (options.device >= 0) left = SL_TRY(kept_mount(options.ledger));
  Mount mount =
      left ? Mount::adopt(UniqueFd(::fcntl(options.device, F_DUPFD_CLOEXEC, 0)), left->mount)
           : SL_TRY(Mount::open({options.mountpoint, options.max_write}));
  std::unique_ptr<Session> session(new Session(vfs, options, std::move(mount)));
  SL_TRY(left ? session->go_on(*left) : session->begin());
  return session;
}

/// As the daemon before had settled it with the kernel, which says INIT only once.
Status Session::go_on(const KeptMount& left) {
  resend_ = kept_ = true;
  features_.passthrough = left.passthrough;
  features_.max_write = left.max_write;
  wide_setxattr_ = left.wide_setxattr;
  kernel_checks_flags_ = left.kernel_checks_flags;
  raised_read_ahead_ = left.raised_read_ahead;
  heard_ = left.heard;
  limitations_ = left.limitations;
  bound_ = left.bound;
  const std::uint32_t probe = features_.passthrough ? probe_backing() : 0;
  backing_.restore(probe);
  start_serving();
  const Status resent = notifier_.resend();
  if (!resent.ok()) SL_LOG(warn, "event=not_resent error=\"{}\"", resent.to_string());
  return {};
}

Status Session::begin() {
  SL_TRY(receive_init());
  if (features_.passthrough && probe_backing() == 0) {
    features_.passthrough = false;
    limitations_.emplace_back(
        "the kernel refuses this process backing files, so mapped files go through the page cache");
  }
  if (!mount_.privileged())
    limitations_.emplace_back("without root: no passthrough, no raised read-ahead, no bind mounts");
  if (!mount_.for_all_users())
    limitations_.emplace_back("only this user sees the mount (user_allow_other is not set)");
  if (mount_.privileged()) {
    // After INIT, which may only lower it, and before the first open, which keeps what it finds.
    const Status raised = mount_.set_read_ahead(options_.read_ahead_kib);
    raised_read_ahead_ = raised.ok();
    if (!raised.ok()) limitations_.push_back(raised.text());
  }
  SL_TRY(hand_on());
  start_serving();
  SL_TRY(bind_all());
  return note_facts();
}

/// From here on another daemon can go on with the mount.
Status Session::hand_on() {
  if (!options_.keep) return {};
  if (!resend_) {
    limitations_.emplace_back(
        "this kernel cannot send requests again (Linux 6.9): if the mount's process dies, so does "
        "the mount");
    return {};
  }
  SL_TRY(note_facts());
  SL_TRY(options_.keep(mount_));
  kept_ = true;
  return {};
}

Status Session::note_facts() {
  if (options_.ledger == nullptr) return {};
  return options_.ledger->put({client::Ledger::Kind::mount},
                              encode({.mount = mount_.facts(),
                                      .passthrough = features_.passthrough,
                                      .wide_setxattr = wide_setxattr_,
                                      .kernel_checks_flags = kernel_checks_flags_,
                                      .raised_read_ahead = raised_read_ahead_,
                                      .max_write = features_.max_write,
                                      .heard = heard_,
                                      .limitations = limitations_,
                                      .bound = bound_}));
}

Status Session::receive_init() {
  std::vector<std::byte> buffer(64_KiB);
  ssize_t got = 0;
  do got = ::read(mount_.device(), buffer.data(), buffer.size());
  while (got < 0 && (errno == EINTR || errno == ENOENT));
  if (got < 0) return system_error("cannot read the first request of the mount", errno);
  return answer_init(ByteSpan(buffer).first(static_cast<std::size_t>(got)));
}

void Session::start_serving() {
  vfs_.start(&notifier_, features_);
  vfs_started_ = true;
  server_ = std::make_unique<Server>(
      vfs_, backing_,
      Server::Options{.passthrough = features_.passthrough, .flags = kernel_checks_flags_});
  in_flight_ = std::make_unique<InFlight>([this](std::uint64_t unique) { give_up(unique); });
  Workers::Options options;
  options.device = mount_.device();
  options.max_request_bytes =
      sizeof(InHeader) + sizeof(fuse_write_in) + std::max(features_.max_write, 128U << 10);
  options.max_threads = std::max<std::size_t>(options_.max_threads, 2);
  options.keep_idle = std::max<std::size_t>(options_.idle_threads, 1);
  options.queued = &operations_.queued;
  options.populated_threads = kept_ ? kPopulated : 0;
  Workers::Handlers handlers;
  handlers.serve = [this](ByteSpan bytes) { serve(bytes); };
  handlers.urgent = [](ByteSpan bytes) { return urgent(bytes); };
  handlers.queued = [this](ByteSpan bytes) {  // so that an INTERRUPT finds it
    const auto request = decode_header(bytes);
    if (request.ok()) note_begun(request.value());
  };
  start_quick_wake();
  workers_ = std::make_unique<Workers>(options, std::move(handlers));
  workers_->start();
}

void Session::start_quick_wake() {
  if (!options_.quick_wake) return;
  const Result<std::int32_t> latency = wanted_wake_latency_us();
  if (!latency.ok()) {
    no_quick_wake_ = latency.status().text();
    return;
  }
  auto started = QuickWake::start({.latency_us = *latency}, requests_);
  if (started.ok())
    quick_wake_ = std::move(started.value());
  else
    no_quick_wake_ = started.status().text();
}

std::string Session::quick_wake() const {
  return quick_wake_ ? "on, while requests come fast" : "off: " + no_quick_wake_;
}

Status Session::answer_init(ByteSpan bytes) {
  const Request request = SL_TRY(decode_header(bytes));
  if (request.opcode != FUSE_INIT || request.body.size() < kInitInCompatSize) {
    return Status(Errc::protocol, "the kernel does not begin the mount with INIT");
  }
  InitIn in{};
  std::memcpy(&in, request.body.data(), std::min(sizeof in, request.body.size()));
  heard_ = in;
  Reply reply(mount_.device(), request.unique);
  const auto agreed =
      negotiate(in, {options_.passthrough && mount_.privileged(), options_.max_write});
  if (!agreed.ok()) {
    reply.error(EPROTO);
    return agreed.status();
  }
  if (!reply.plain(agreed.value().answer))
    return Status(Errc::io, "the kernel does not take the answer to INIT");
  features_.passthrough = agreed.value().passthrough;
  wide_setxattr_ = agreed.value().wide_setxattr;
  features_.max_write = agreed.value().max_write;
  kernel_checks_flags_ = in.minor >= kProtocolMinorFlags;
  resend_ = agreed.value().resend;
  if (options_.passthrough && mount_.privileged() && !features_.passthrough) {
    limitations_.emplace_back(
        "this kernel has no FUSE passthrough (Linux 6.9), so mapped files go through the page "
        "cache");
  }
  SL_LOG(info, "event=mounted at={} protocol={}.{} max_write={} passthrough={}",
         mount_.mountpoint(), in.major, in.minor, features_.max_write, features_.passthrough);
  return {};
}

// A number of the kernel's for a file, given back; 0: it gives none. It also wants a capability
// that root in a container may lack; an open that finds that out would fail.
std::uint32_t Session::probe_backing() const {
  const UniqueFd file(::memfd_create("starlane-probe", MFD_CLOEXEC));
  BackingMap map{file.get(), 0, 0};
  const int number = ::ioctl(mount_.device(), kIocBackingOpen, &map);
  if (number <= 0) return 0;
  auto given_back = static_cast<std::uint32_t>(number);
  ::ioctl(mount_.device(), kIocBackingClose, &given_back);
  return given_back;
}

Status Session::bind_all() {
  for (const Bind& bind : options_.binds) {
    const Status status = bind_mount(mount_.mountpoint() + "/" + bind.inside, bind.target);
    if (!status.ok()) return status;
    bound_.push_back(bind.target);
  }
  return {};
}

void Session::unbind_all() {
  for (auto target = bound_.rbegin(); target != bound_.rend(); ++target) unmount(*target);
  bound_.clear();
}

void Session::serve(ByteSpan bytes) {
  auto request = decode_header(bytes);
  if (!request.ok()) {
    SL_LOG(error, "event=fuse_request_refused error=\"{}\"", request.status().to_string());
    return;
  }
  const std::uint64_t number = requests_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (quick_wake_) quick_wake_->note(number);
  Request& one = request.value();
  one.wide_setxattr = wide_setxattr_;
  if (one.opcode == FUSE_INTERRUPT) return interrupt(one);
  Reply reply(mount_.device(), one.unique);
  if (has_no_answer(one.opcode)) return server_->serve(one, reply);
  note_begun(one);
  if (one.opcode == FUSE_SETLKW) {
    return server_->serve_waiting(one, std::make_shared<Reply>(mount_.device(), one.unique),
                                  [this, unique = one.caller.unique] { in_flight_->end(unique); });
  }
  const bool again = (one.unique & kUniqueResend) != 0;
  if (again && !suspects_.begin(one.caller.unique))
    refuse_suspect(one, reply);
  else
    serve_counted(one, reply);
  if (again) suspects_.end(one.caller.unique);
  in_flight_->end(one.caller.unique);
}

void Session::note_begun(const Request& request) {
  const bool any_signal = request.opcode == FUSE_SETLKW;  // may last for ever
  in_flight_->begin(request.caller.unique, any_signal ? 0 : request.caller.pid);
}

/// Its thread should not wait on.
void Session::give_up(std::uint64_t unique) {
  if (const auto waiting = workers_->take_queued(unique)) {  // it must not wait for a thread to end
    Reply(mount_.device(), waiting->unique).error(EINTR);
    return in_flight_->end(unique);
  }
  vfs_.interrupt(unique);
}

void Session::refuse_suspect(const Request& request, Reply& reply) {
  SL_LOG(
      error,
      "event=request_given_up operation={} node={:x} pid={} cause=\"processes of this mount crash "
      "while they serve it\"",
      name_of_opcode(request.opcode), request.node.pack(), request.caller.pid);
  reply.error(EIO);
}

void Session::serve_counted(Request& request, Reply& reply) {
  const TraceScope trace(make_trace(request.caller.unique));
  const bool watched = tap_.active();
  client::AccessEntry entry;
  if (watched) {
    entry = describe(request, vfs_);
    entry.at = system_clock().wall();
  }
  const std::size_t carried = request.body.size();
  const Nanoseconds began = system_clock().boot();
  server_->serve(request, reply);
  const Nanoseconds took = system_clock().boot() - began;
  Operations::Kind& kind = operations_.of(request.opcode);
  kind.took.record(took);
  if (reply.outcome() != 0) kind.failed.add();
  std::uint64_t moved = 0;
  if (reply.outcome() == 0 && request.opcode == FUSE_READ) {
    operations_.read_bytes.add(moved = reply.answered_bytes());
  } else if (reply.outcome() == 0 && request.opcode == FUSE_WRITE) {
    operations_.written_bytes.add(moved = carried - sizeof(fuse_write_in));
  }
  if (options_.slow.count() != 0 && took > options_.slow) log_slow(request, reply, took);
  if (!watched) return;
  entry.took = took;
  entry.error = reply.outcome();
  entry.result = moved;
  entry.trace = current_trace();
  tap_.offer(std::move(entry));
}

void Session::log_slow(const Request& request, const Reply& reply, Nanoseconds took) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(took).count();
  SL_LOG(warn,
         "event=slow_operation operation={} node={:x} pid={} took_ms={} errno={} trace={:016x}",
         name_of_opcode(request.opcode), request.node.pack(), request.caller.pid, ms,
         reply.outcome(), current_trace());
}

// EAGAIN: the kernel says it again if the request is still unanswered (its thread has read it, but
// not noted it yet).
void Session::interrupt(const Request& request) {
  Request copy = request;
  const auto operation = decode_operation(copy);
  if (!operation.ok()) return;
  const auto& target = std::get<op::Interrupt>(operation.value());
  const std::uint64_t unique = target.unique & ~kUniqueResend;
  if (in_flight_->interrupt(unique)) return;
  Reply(mount_.device(), request.unique).error(EAGAIN);
}

Status Session::stop() {
  MutexLock lock(stop_m_);
  if (stopped_) return stop_status_;
  stopped_ = true;
  unbind_all();
  mount_.detach();
  if (workers_) end_connection();
  if (vfs_started_) stop_status_ = vfs_.stop();
  return stop_status_;
}

void Session::drain(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  workers_->end();
  while (!workers_->all_gone() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
    workers_->end();  // one may have been on its way to read()
  }
}

void Session::end_connection() {
  if (!workers_->wait_ended(kGrace)) {
    in_flight_->interrupt_all();
    if (!mount_.abort().ok()) workers_->end();
  }
  in_flight_->interrupt_all();
  workers_->join();
}

Session::Figures Session::figures() {
  Figures figures;
  figures.requests = requests_.load(std::memory_order_relaxed);
  figures.stored_bytes = notifier_.stored_bytes();
  figures.backing_files = backing_.live();
  figures.waiting = mount_.waiting();
  if (workers_) {
    figures.threads = workers_->threads();
    figures.most_threads = workers_->most_threads();
    figures.in_flight = in_flight_->size();
  }
  return figures;
}

}  // namespace starlane::fuse
