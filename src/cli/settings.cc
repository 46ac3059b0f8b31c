#include "cli/settings.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace starlane::cli {
struct NotToml {};
[[noreturn]] static void refuse_toml() { throw NotToml(); }
}  // namespace starlane::cli
// toml++ asserts where some malformed files are no bug of anyone's but theirs ("[~table]").
#undef NDEBUG  // with which it would take for true what it asserts
#define TOML_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : ::starlane::cli::refuse_toml())
#include <toml++/toml.h>

namespace starlane::cli {
namespace {

constexpr const char* kCommonGroup = "Settings";

const char* group_of(RoleKind role) {
  switch (role) {
    case RoleKind::meta:
      return "Metadata settings";
    case RoleKind::store:
      return "Block store settings";
    case RoleKind::mount:
      return "Mount settings";
    case RoleKind::keeper:
      return "Keeper settings";
  }
  return "";
}

std::string mib(std::uint64_t bytes) { return std::to_string(bytes / 1_MiB) + "MiB"; }

void add_meta(CLI::App& command, const char* group, wire::MetaOptions& options) {
  command.add_option("--meta-listen", options.listen, "Also serve metadata at tcp:HOST:PORT")
      ->group(group);
  command.add_option("--meta-cache", options.cache_bytes, "Memory for the engine's cache")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{8_MiB}, std::uint64_t{1} << 44))
      ->default_str(mib(options.cache_bytes))
      ->group(group);
  command.add_option("--meta-workers", options.workers, "Calls served at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lease-ms", options.lease_ms,
                  "A client silent for so long loses what it holds, milliseconds")
      ->check(CLI::Range(1000, 600'000))
      ->capture_default_str()
      ->group(group);
}

void add_store(CLI::App& command, const char* group, wire::StoreOptions& options) {
  command
      .add_option("--store-dir", options.directories,
                  "Directory of a block target; may be given several times")
      ->group(group);
  command.add_option("--store-listen", options.listen, "Also serve blocks at tcp:HOST:PORT")
      ->group(group);
  command
      .add_option("--store-advertise", options.advertise,
                  "The endpoint at which clients reach this store")
      ->group(group);
  command.add_option("--store-workers", options.workers, "Calls served at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
}

void add_mount(CLI::App& command, const char* group, wire::MountOptions& options) {
  command
      .add_option("--bind", options.binds,
                  "Show a part of the mount elsewhere, as volumes/work=/workspace")
      ->group(group);
  command
      .add_flag_callback(
          "--no-passthrough", [&options] { options.passthrough = false; },
          "Serve large files through the page cache only")
      ->group(group);
  const auto bytes = [&](const char* name, std::uint64_t& value, const char* text) {
    command.add_option(name, value, text)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 50))
        ->default_str(mib(value))
        ->group(group);
  };
  bytes("--node-cache", options.node_cache_bytes, "Memory for mapped files");
  bytes("--block-cache", options.block_cache_bytes, "Memory for blocks that were read");
  bytes("--dirty", options.dirty_bytes, "Memory for bytes that are not stored yet");
  bytes("--tree-names", options.tree_names_bytes,
        "Memory for the names of trees that the kernel serves (dataset mount)");
  command
      .add_option(
          "--access-log", options.access_log,
          "Write a line for each operation to this file; `starlane access-log` does it later")
      ->group(group);
  command
      .add_flag_callback(
          "--no-quick-wake", [&options] { options.quick_wake = false; },
          "Let processors sleep deeply while requests come fast: saves power, small ones take "
          "longer")
      ->group(group);
  command
      .add_flag_callback(
          "--no-hold", [&options] { options.hold = false; },
          "No holder: the mount ends with its process")
      ->group(group);
  command
      .add_option("--hang-limit-ms", options.hang_limit_ms,
                  "A mount's process that is silent for so long is replaced; 0: never")
      ->check(CLI::Range(0, 600'000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--fetch-threads", options.fetch_threads, "Blocks fetched or stored at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
}

/// Long name of an option without dashes: its key in the file.
std::string key_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? std::string() : option.get_lnames().front();
}

bool is_setting(const CLI::Option& option) {
  return option.get_group().find("ettings") != std::string::npos;
}

Result<std::vector<std::string>> texts_of(const toml::node& node, const std::string& where) {
  std::vector<std::string> out;
  const auto one = [&](const toml::node& value) {
    if (const auto text = value.value<std::string>(); value.is_string() && text)
      return out.push_back(*text), true;
    if (value.is_boolean()) return out.push_back(*value.value<bool>() ? "true" : "false"), true;
    if (value.is_integer())
      return out.push_back(std::to_string(*value.value<std::int64_t>())), true;
    return false;
  };
  bool good = true;
  if (const toml::array* list = node.as_array())
    for (const toml::node& value : *list) good = good && one(value);
  else
    good = one(node);
  if (!good)
    return Status(Errc::invalid,
                  where + ": a value is text, a whole number, true or false, or a list of them");
  return out;
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

/// As the file has it: a flag is true or false, what may be given several times a list, all else
/// text.
std::string value_text(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return option.count() > 0 ? "true" : "false";
  if (option.get_items_expected_max() == 1)
    return quoted(option.count() > 0 ? option.results().front() : option.get_default_str());
  std::string list;
  for (const std::string& result : option.results())
    list += (list.empty() ? "" : ", ") + quoted(result);
  return "[" + list + "]";
}

Status take(CLI::Option& option, const std::vector<std::string>& texts, const std::string& where) {
  try {
    if (option.count() > 0) return {};  // the flag wins
    for (const std::string& text : texts) option.add_result(text);
    option.run_callback();
  } catch (const CLI::Error& wrong) {
    return Status(Errc::invalid, where + ": " + wrong.what());
  }
  return {};
}

}  // namespace

void add_settings(CLI::App& command, RoleKind role, Settings& settings) {
  const char* group = group_of(role);
  switch (role) {
    case RoleKind::meta:
      return add_meta(command, group, settings.meta);
    case RoleKind::store:
      return add_store(command, group, settings.store);
    case RoleKind::mount:
      return add_mount(command, group, settings.mount);
    case RoleKind::keeper:
      command
          .add_option("--keeper-interval-ms", settings.keeper.interval_ms,
                      "Between rounds of background work")
          ->check(CLI::Range(10, 600'000))
          ->capture_default_str()
          ->group(group);
      command
          .add_option(
              "--scrub-rate", settings.keeper.scrub_bytes_per_second,
              "Most bytes a second read back of each target, as 32MiB; 0: only by `starlane "
              "scrub`")
          ->transform(CLI::AsSizeValue(false))
          ->capture_default_str()
          ->group(group);
      command
          .add_option("--scrub-days", settings.keeper.scrub_days,
                      "From the end of one reading of all blocks to the next")
          ->check(CLI::Range(1, 3'650))
          ->capture_default_str()
          ->group(group);
  }
}

void add_common_settings(CLI::App& command, Settings& settings) {
  command.add_option("--log-level", settings.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str()
      ->group(kCommonGroup);
  command
      .add_flag("--ucx", settings.ucx,
                "Move bulk data between processes by UCX, which has RDMA verbs between hosts")
      ->group(kCommonGroup);
  command
      .add_option(
          "--metrics", settings.metrics,
          "Also serve /metrics at HOST:PORT, or at PORT on loopback; with `up --separate` the "
          "roles take this port and the next three: meta, store, keeper, mount")
      ->group(kCommonGroup);
  command
      .add_option("--slow-ms", settings.slow_ms,
                  "Operations and calls that take longer are logged, milliseconds; 0: none")
      ->check(CLI::Range(0, 3'600'000))
      ->capture_default_str()
      ->group(kCommonGroup);
}

Status apply_file(CLI::App& command, const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  toml::table table;
  try {
    table = toml::parse_file(file.string());
  } catch (const toml::parse_error& wrong) {
    return Status(Errc::invalid, file.string() + ":" + std::to_string(wrong.source().begin.line) +
                                     ": " + std::string(wrong.description()));
  } catch (const NotToml&) {
    return Status(
        Errc::invalid,
        file.string() + ": this is not TOML; `starlane up --print-config` writes such a file");
  }
  // Every role reads the one file, so a key is known if any command has it.
  std::map<std::string, CLI::Option*> known;
  const CLI::App* top = command.get_parent();
  for (CLI::App* other :
       const_cast<CLI::App*>(top)->get_subcommands([](CLI::App*) { return true; }))
    for (CLI::Option* option : other->get_options())
      if (is_setting(*option) && (other == &command || !known.contains(key_of(*option))))
        known[key_of(*option)] = option;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where = file.string() + ":" + std::to_string(node.source().begin.line);
    const auto found = known.find(name);
    if (found == known.end())
      return Status(Errc::invalid, where + ": there is no setting " + name +
                                       "; `starlane up --print-config` lists them");
    CLI::Option* mine = command.get_option_no_throw("--" + name);
    const std::vector<std::string> texts = SL_TRY(texts_of(node, where + ": " + name));
    if (mine != nullptr) SL_TRY(take(*mine, texts, where + ": " + name));
  }
  return {};
}

std::vector<std::string> forwarded(const CLI::App& command, RoleKind role) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options()) {
    const bool wanted =
        option->get_group() == group_of(role) || option->get_group() == kCommonGroup;
    if (!wanted || option->count() == 0) continue;
    for (const std::string& value : option->results())
      out.push_back("--" + key_of(*option) + "=" + value);
  }
  return out;
}

std::string print_config(const CLI::App& command) {
  std::ostringstream out;
  std::string group;
  for (const CLI::Option* option : command.get_options()) {
    if (!is_setting(*option)) continue;
    if (option->get_group() != group) {
      out << (group.empty() ? "" : "\n") << "# " << option->get_group() << "\n";
      group = option->get_group();
    }
    out << "# " << option->get_description() << "\n"
        << (option->count() > 0 ? "" : "# ") << key_of(*option) << " = " << value_text(*option)
        << "\n";
  }
  return out.str();
}

}  // namespace starlane::cli
