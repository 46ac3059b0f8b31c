// The id that follows one piece of work through threads and processes: a request of the kernel gets
// one, calls carry it (proto/call.h), logs show it. Kept by the thread that does the work; a
// ThreadPool hands it on with what it is given. Any thread.
#pragma once
#include <cstdint>
#include <utility>

namespace starlane {

namespace trace_internal {
inline thread_local constinit std::uint64_t current = 0;
}

/// Of what the calling thread does now; 0: nobody asked for it.
inline std::uint64_t current_trace() { return trace_internal::current; }

/// Sets it until the end of the scope.
class TraceScope {
 public:
  explicit TraceScope(std::uint64_t trace)
      : before_(std::exchange(trace_internal::current, trace)) {}
  ~TraceScope() { trace_internal::current = before_; }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const std::uint64_t before_;
};

/// Distinct from those of other processes in all likelihood: 16 bits chosen at this process's
/// start, then `number`, which the process has not used before.
std::uint64_t make_trace(std::uint64_t number);

}  // namespace starlane
