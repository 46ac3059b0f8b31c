#include "common/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <csignal>
#include <cstdio>
#include <memory>

namespace starlane {
namespace {

/// By a thread of the library's, which must not take the signals that another one waits for.
void flush_every_second() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  spdlog::flush_every(std::chrono::seconds(1));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void start_logging(const LogOptions& options) {
  spdlog::drop(options.role);
  std::shared_ptr<spdlog::logger> logger;
  try {
    if (!options.file.empty()) logger = spdlog::basic_logger_mt(options.role, options.file);
  } catch (const spdlog::spdlog_ex& failed) {
    std::fprintf(stderr, "starlane: no log in %s (%s); logging here\n", options.file.c_str(),
                 failed.what());
  }
  if (!logger) logger = spdlog::stderr_logger_mt(options.role);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n[%t] %v");
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(logger);
  flush_every_second();
}

}  // namespace starlane
