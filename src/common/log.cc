#include "common/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <memory>

namespace starlane {

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
  spdlog::flush_every(std::chrono::seconds(1));
}

}  // namespace starlane
