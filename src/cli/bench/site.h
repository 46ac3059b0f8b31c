// What is measured: a Starlane site of the benchmark's own, in one process or with its roles apart,
// with passthrough or without; and what it is held against: a FUSE server that answers from memory.
// Each is started anew for a cold run: the mount goes, and with it every page that the kernel kept
// of it. One thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/process.h"
#include "common/status.h"

namespace starlane::cli::bench {

struct Mode {
  const char* name;
  bool separate;
  bool passthrough;
};
inline constexpr Mode kTogether{"one process", false, true};
inline constexpr Mode kApart{"roles apart", true, true};
inline constexpr Mode kTogetherCached{"one process, no passthrough", false, false};
inline constexpr Mode kApartCached{"roles apart, no passthrough", true, false};

class Site {
 public:
  /// Everything of it lies in `directory`, which exists.
  explicit Site(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Runs in this mode with nothing cached: stops it, if it ran, and starts it.
  Status cold(const Mode& mode);
  /// Runs in this mode; what was cached may stay.
  Status ensure(const Mode& mode);
  Status stop() { return service_.stop(); }

  std::filesystem::path mount() const { return directory_ / "mnt"; }
  /// Of the one volume, which is made when first started.
  std::filesystem::path volume() const { return mount() / "volumes" / "bench"; }

  /// `starlane --dir SITE WORDS…`.
  Result<std::string> command(Words words) const;
  Result<nlohmann::json> status() const;
  /// Of its processes, so far.
  double cpu_seconds() const;
  /// Bytes that all targets hold.
  Result<std::uint64_t> stored_bytes() const;
  /// Bytes that the mount fetched from the store since it started, once it fetches no more.
  Result<std::uint64_t> settled_fetched_bytes() const;
  /// Waits until what was deleted is given back, but not for ever.
  Status wait_for_space(std::uint64_t stored_bytes) const;

 private:
  std::filesystem::path site() const { return directory_ / "site"; }

  const std::filesystem::path directory_;
  Service service_;
  const Mode* mode_ = nullptr;
};

/// A file as the FUSE server shows it: a part of a file on this machine.
struct Shown {
  std::string name;
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class Ceiling {
 public:
  explicit Ceiling(std::filesystem::path directory) : directory_(std::move(directory)) {}

  Status cold(const std::vector<Shown>& files);
  Status stop() { return service_.stop(); }
  std::filesystem::path mount() const { return directory_ / "ceiling"; }

 private:
  const std::filesystem::path directory_;
  Service service_;
};

/// The words of the hidden command that runs the server, and back.
std::string word_of(const Shown& shown);
Result<Shown> shown_of(const std::string& word);

}  // namespace starlane::cli::bench
