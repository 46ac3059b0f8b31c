#include "common/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace starlane {

void start_logging(const LogOptions& options) {
  auto logger = options.file.empty() ? spdlog::stderr_logger_mt(options.role)
                                     : spdlog::basic_logger_mt(options.role, options.file);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n[%t] %v");
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(logger);
  spdlog::flush_every(std::chrono::seconds(1));
}

}  // namespace starlane
