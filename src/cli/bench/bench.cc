#include "cli/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/bench/bytes.h"
#include "cli/bench/memory.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

Status remove_file(const fs::path& file) {
  std::error_code failed;
  fs::remove(file, failed);
  return failed ? Status(Errc::io, "cannot remove " + file.string() + ": " + failed.message())
                : Status();
}

}  // namespace

Status Bench::need_files(const std::vector<File>& files) {
  const auto same = [](const File& a, const File& b) {
    return a.name == b.name && a.length == b.length;
  };
  if (std::ranges::equal(files, files_, same)) return {};
  SL_TRY(site.ensure(kTogether));
  for (const File& old : files_) SL_TRY(remove_file(file(old.name)));
  if (!files_.empty()) SL_TRY(site.wait_for_space(64_MiB));
  files_.clear();
  for (const File& one : files) {
    [[maybe_unused]] const double rate =
        SL_TRY(write_file({.file = file(one.name), .length = one.length, .seed = kSeed}));
    files_.push_back(one);
  }
  return {};
}

Status Bench::need_local(std::uint64_t length) {
  std::error_code failed;
  if (fs::exists(local_file(), failed) && fs::file_size(local_file(), failed) == length) return {};
  SL_TRY(ceiling.stop());
  SL_TRY(remove_file(local_file()));
  if (length == 0) return {};
  fs::create_directories(local(), failed);
  return write_file({.file = local_file(), .length = length, .seed = kSeed, .durable = false})
      .status();
}

Status Bench::drop_files() {
  SL_TRY(need_local(0));
  return need_files({});
}

void Bench::say(const Row& row, std::size_t round) const {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s, %s: round %zu of %zu", row.what.c_str(), row.how.c_str(),
               round + 1, runs());
  std::fflush(stderr);
}

const std::vector<Line>& all_lines() {
  static const std::vector<Line> lines{
      {"write", "sequential write of a large file, then fsync", line_write},
      {"read", "sequential read() of a large cold file, one thread", line_read},
      {"read-threads", "the same by four threads on one descriptor", line_read_threads},
      {"read-direct", "O_DIRECT reads of 4 MiB of a cold file", line_read_direct},
      {"read-files", "four cold files at once", line_read_files},
      {"random", "reads of 4 KiB at random places of a warm file, one and 16 at a time",
       line_random},
      {"map", "a cold checkpoint mapped and copied out forward", line_map_forward},
      {"map-torch", "the same in the order in which torch touches it", line_map_torch},
      {"map-again", "a second process maps the same file", line_second_process},
      {"map-8", "eight processes load one cold checkpoint", line_eight_processes},
      {"stall", "what a read and a write feel when the mount's daemon is killed", line_stall},
      {"names", "create, stat, list and unlink a second", line_names},
      {"copy", "cp -r of a published set of large files into a volume", line_copy},
      {"copy-small", "the same for small files", line_copy_small},
  };
  return lines;
}

}  // namespace starlane::cli::bench
