// Status and Result<T>: how every fallible function reports failure. The whole tree uses them; any
// thread. An Errc names what the caller can do about it; the cause, for a person, is the text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace starlane {

/// One value per errno a caller of the file system can see, then our own reactions. Numbers are
/// part of the wire (docs/formats.md): append only.
enum class Errc : std::uint16_t {
  ok = 0,
  not_found = 1,         // ENOENT
  exists = 2,            // EEXIST
  not_directory = 3,     // ENOTDIR
  is_directory = 4,      // EISDIR
  not_empty = 5,         // ENOTEMPTY
  no_space = 6,          // ENOSPC
  quota = 7,             // EDQUOT
  read_only = 8,         // EROFS
  access = 9,            // EACCES
  not_permitted = 10,    // EPERM
  invalid = 11,          // EINVAL
  name_too_long = 12,    // ENAMETOOLONG
  too_many_links = 13,   // EMLINK
  cross_device = 14,     // EXDEV
  file_too_large = 15,   // EFBIG
  unsupported = 16,      // EOPNOTSUPP
  not_implemented = 17,  // ENOSYS
  no_attribute = 18,     // ENODATA
  range = 19,            // ERANGE
  stale_handle = 20,     // ESTALE
  bad_handle = 21,       // EBADF
  text_busy = 22,        // ETXTBSY
  loop = 23,             // ELOOP
  interrupted = 24,      // EINTR
  too_big = 25,          // E2BIG
  no_device = 26,        // ENXIO
  would_block = 27,      // EAGAIN
  no_memory = 28,        // ENOMEM
  io = 29,               // EIO
  deadlock = 30,         // EDEADLK
  no_locks = 31,         // ENOLCK
  // Reactions of our own; none should reach an application but as EIO, EBUSY or a wait.
  conflict = 64,  // the transaction lost a race: run it again from its first read
  stale = 65,  // the caller's map, epoch or version is older than the server's: refresh, then retry
  busy = 66,   // a limit is reached or a resource is held: wait, then retry
  timeout = 67,          // no answer within the deadline: it may or may not have happened
  unavailable = 68,      // the peer cannot be reached: wait, then retry
  corrupt = 69,          // data failed its check: read another copy
  fenced = 70,           // the session or attachment was ended by the server: open a new one
  protocol = 71,         // the peer broke the protocol or speaks another version: do not retry
  unauthenticated = 72,  // the peer did not prove who it is
};

/// Stable lower-case name, for logs and one-sentence errors.
std::string_view name_of(Errc code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Errc code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == Errc::ok; }
  Errc code() const { return code_; }
  const std::string& text() const { return text_; }
  /// "not_found: no volume named x", for logs.
  std::string to_string() const;
  /// The same code with `context` and ": " before the text.
  Status with(std::string_view context) const;

 private:
  Errc code_ = Errc::ok;
  std::string text_;
};

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

/// Aborts, in release too, when an invariant of our own is broken. Never for what a peer, a disk or
/// a user sent.
#define SL_CHECK(expression) \
  ((expression) ? static_cast<void>(0) : ::starlane::check_failed(#expression, __FILE__, __LINE__))

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Status error) : held_(std::in_place_index<1>, std::move(error)) {  // NOLINT
    SL_CHECK(!std::get_if<1>(&held_)->ok());
  }
  Result(Errc code, std::string text) : Result(Status(code, std::move(text))) {}

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    SL_CHECK(ok());
    return *std::get_if<0>(&held_);
  }
  const T& value() const& {
    SL_CHECK(ok());
    return *std::get_if<0>(&held_);
  }
  T&& value() && {
    SL_CHECK(ok());
    return std::move(*std::get_if<0>(&held_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// The failure, or an ok Status.
  Status status() const { return ok() ? Status() : *std::get_if<1>(&held_); }
  Errc code() const { return ok() ? Errc::ok : std::get_if<1>(&held_)->code(); }

 private:
  std::variant<T, Status> held_;
};

namespace detail {
inline Status failure_of(const Status& status) { return status; }
template <typename T>
Status failure_of(const Result<T>& result) {
  return result.status();
}
inline void take(Status&&) {}
template <typename T>
T take(Result<T>&& result) {
  return std::move(result).value();
}
}  // namespace detail

/// The value of a Result (or nothing, of a Status); returns the failure from the enclosing
/// function.
#define SL_TRY(expression)                              \
  (__extension__({                                      \
    auto sl_tried_ = (expression);                      \
    if (!sl_tried_.ok()) [[unlikely]]                   \
      return ::starlane::detail::failure_of(sl_tried_); \
    ::starlane::detail::take(std::move(sl_tried_));     \
  }))

}  // namespace starlane
