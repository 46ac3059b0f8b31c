// The small files in which a Linux machine says what it is, below a root of choice. Values; any
// thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "doctor/doctor.h"

namespace starlane::doctor {

class Host {
 public:
  explicit Host(std::filesystem::path root) : root_(std::move(root)) {}

  /// Whole, without the line end; nothing when it cannot be read.
  std::optional<std::string> text(const std::string& path) const;
  std::optional<std::uint64_t> number(const std::string& path) const;
  /// The word in brackets, as in "always [madvise] never".
  std::optional<std::string> choice(const std::string& path) const;
  /// The value behind "NAME:" in a file of such lines, in bytes when it says kB.
  std::optional<std::uint64_t> field(const std::string& path, const std::string& name) const;
  bool exists(const std::string& path) const;
  bool is_this_machine() const { return root_ == "/"; }

 private:
  const std::filesystem::path root_;
};

/// "1.5 GiB".
std::string size_text(std::uint64_t bytes);

using Checks = std::vector<Check>;
// One for each file of checks.
void check_kernel(const Host& host, const Options& options, Checks& out);
void check_limits(const Host& host, Checks& out);
void check_memory(const Host& host, Checks& out);
void check_time(const Host& host, Checks& out);
void check_space(const Options& options, Checks& out);

}  // namespace starlane::doctor
