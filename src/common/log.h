// One line is one event with key=value, through spdlog, which only this header knows. Log or return
// an error, never both. error: a person must act; warn: degraded; info: state changed; debug: off
// in production.
#pragma once
#include <spdlog/spdlog.h>

#include <string>

namespace starlane {

#define SL_LOG(level, ...) ::spdlog::level(__VA_ARGS__)

struct LogOptions {
  std::string role;  // shown in each line
  std::string file;  // empty: standard error
  std::string level = "info";
};

/// At the start of a process; again to send what follows elsewhere. A file that cannot be opened is
/// told on standard error.
void start_logging(const LogOptions& options);

}  // namespace starlane
