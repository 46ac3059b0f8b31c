// The settings of the roles, each declared once: its flag, its key in starlane.toml, its help, its
// limits. Flags win over the file. Single-threaded.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"
#include "wire/roles.h"

namespace starlane::cli {

struct Settings {
  wire::MetaOptions meta;
  wire::StoreOptions store;
  wire::MountOptions mount;
  wire::KeeperOptions keeper;
  std::string log_level = "info";
  bool ucx = false;
  std::string metrics;  // PORT or HOST:PORT; empty: on the unix socket only
  std::uint32_t slow_ms = 1000;

  /// Gives the roles what all have in common.
  void share() { meta.slow = store.slow = mount.slow = Milliseconds(slow_ms); }
  wire::Bulk bulk() const { return ucx ? wire::Bulk::ucx : wire::Bulk::by_place; }
};

enum class RoleKind : std::uint8_t { meta, store, mount, keeper };

/// Declares the settings of a role on a command.
void add_settings(CLI::App& command, RoleKind role, Settings& settings);
/// Declares those that every role has.
void add_common_settings(CLI::App& command, Settings& settings);

/// Takes the settings of the file that were not given as flags. No file: nothing to do. A key that
/// no command has, or a value out of limits, is `invalid` with file and line.
Status apply_file(CLI::App& command, const std::filesystem::path& file);

/// What was given as flags for `role`, as arguments for a process of that role.
std::vector<std::string> forwarded(const CLI::App& command, RoleKind role);

/// Every setting of a command with its present value, as a starlane.toml with comments.
std::string print_config(const CLI::App& command);

}  // namespace starlane::cli
