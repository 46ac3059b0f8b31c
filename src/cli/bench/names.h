// The measurements of names: create, stat, list and unlink of empty files, by several threads, in
// one directory or many. Each takes a directory on any file system. Blocking; one call at a time.
#pragma once
#include <filesystem>

#include "common/status.h"

namespace starlane::cli::bench {

struct NamesPlan {
  std::filesystem::path directory;  // exists
  std::size_t files = 0;
  std::size_t directories = 1;  // 1: all threads in the same one; else each keeps to its own
  std::size_t threads = 1;
};

Status make_directories(const NamesPlan& plan);
Status remove_directories(const NamesPlan& plan);

// Names a second, all threads together.
Result<double> create_files(const NamesPlan& plan);
Result<double> stat_files(const NamesPlan& plan);
/// Each thread lists its own directories, or all of them the one.
Result<double> list_files(const NamesPlan& plan);
Result<double> unlink_files(const NamesPlan& plan);

}  // namespace starlane::cli::bench
