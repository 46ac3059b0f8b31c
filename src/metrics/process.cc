#include "metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace starlane::metrics {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double entries_of(const char* directory) {
  std::error_code failed;
  double count = 0;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed))
    ++count;
  return count;
}

}  // namespace

void add_process(Exposition& out) {
  double total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  out.gauge("process_resident_memory_bytes", "Resident memory", resident * page);
  out.gauge("process_virtual_memory_bytes", "Virtual memory", total * page);
  out.counter_seconds("process_cpu_seconds_total", "Processor time, user and system",
                      seconds(usage.ru_utime) + seconds(usage.ru_stime));
  out.gauge("process_open_fds", "Open descriptors", entries_of("/proc/self/fd"));
  out.gauge("process_max_fds", "Limit of open descriptors", static_cast<double>(files.rlim_cur));
  out.gauge("process_threads", "Threads", entries_of("/proc/self/task"));
}

}  // namespace starlane::metrics
