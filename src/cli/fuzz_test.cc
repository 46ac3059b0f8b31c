// What users and other processes give to commands, fuzzed (common/fuzz.h): starlane.toml, the state
// files of roles, pages of metrics and profiles, access logs, the words of the bench's server.
#include "common/fuzz.h"

#include <CLI/CLI.hpp>

#include "cli/bench/site.h"
#include "cli/role_states.h"
#include "cli/settings.h"
#include "cli/watch/page.h"
#include "cli/watch/profile_table.h"
#include "cli/watch/replay.h"

namespace starlane::cli {
namespace {

namespace fs = std::filesystem;

/// A file that goes away, under a name that every sentence about it has.
class File {
 public:
  explicit File(const std::string& name) {
    char made[] = "/tmp/starlane-cli-fuzz-XXXXXX";
    directory_ = ::mkdtemp(made);
    path_ = directory_ / name;
  }
  ~File() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  const fs::path& directory() const { return directory_; }
  const fs::path& path() const { return path_; }
  void write(std::string_view text) const {
    fs::create_directories(path_.parent_path());
    std::ofstream(path_, std::ios::binary) << text;
  }

 private:
  fs::path directory_, path_;
};

// ---- starlane.toml ----

/// `up`, which has all settings, and `store`, which has some.
struct Commands {
  Commands() : up(top.add_subcommand("up")), store(top.add_subcommand("store")) {
    for (const RoleKind role : {RoleKind::meta, RoleKind::store, RoleKind::mount, RoleKind::keeper})
      add_settings(*up, role, settings);
    add_settings(*store, RoleKind::store, others);
    add_common_settings(*up, settings);
    add_common_settings(*store, others);
  }
  CLI::App top;
  Settings settings, others;
  CLI::App *up, *store;
};

bool within_limits(const Settings& settings) {
  return settings.meta.cache_bytes >= 8_MiB && settings.meta.workers >= 1 &&
         settings.meta.workers <= 1024 && settings.meta.lease_ms >= 1000 &&
         settings.store.workers >= 1 && settings.store.workers <= 1024 &&
         settings.mount.dirty_bytes <= std::uint64_t{1} << 50 &&
         settings.mount.fetch_threads >= 1 && settings.mount.fetch_threads <= 256 &&
         settings.keeper.interval_ms >= 10 && settings.keeper.scrub_days >= 1;
}

bool settings_come_back(const File& file, std::string_view text) {
  file.write(text);
  Commands commands, others;
  (void)apply_file(*others.store, file.path());
  const Status applied = apply_file(*commands.up, file.path());
  if (!applied.ok()) {
    EXPECT_EQ(applied.code(), Errc::invalid);
    EXPECT_TRUE(applied.text().starts_with(file.path().string() + ":")) << applied.text();
    return false;
  }
  EXPECT_TRUE(within_limits(commands.settings));
  const std::string printed = print_config(*commands.up);
  file.write(printed);
  Commands again;
  const Status taken_again = apply_file(*again.up, file.path());
  EXPECT_TRUE(taken_again.ok()) << taken_again.to_string() << "\n" << printed;
  EXPECT_EQ(print_config(*again.up), printed);
  return true;
}

/// As --print-config writes it, with every setting in force.
std::string whole_config() {
  Commands commands;
  std::string text = print_config(*commands.up), out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    if (line.find(" = ") != std::string::npos && line.starts_with("# ")) line.erase(0, 2);
    out += line + "\n";
    at = end + 1;
  }
  return out;
}

TEST(Fuzz, TheConfigurationFile) {
  Fuzz fuzz("cli-toml");
  const File file("starlane.toml");
  fuzz.add(whole_config());
  for (const char* text :
       {"dirty = \"256MiB\"\nblock-cache = 1048576\n", "ucx = true\nno-hold = false\n",
        "bind = [\"volumes/work=/workspace\", \"public=/data\"]\n",
        "store-dir = \"/srv/one\"\nlog-level = \"debug\"\n", "[table]\nkey = 1\n",
        "slow-ms = 0\nlease-ms = 5000\nscrub-rate = \"32MiB\"\n", ""}) {
    fuzz.add(std::string_view(text));
  }
  EXPECT_TRUE(
      settings_come_back(file, "dirty = \"256MiB\"\nbind = [\"a=b\", \"c=d\"]\nucx = true\n"));
  fuzz.set_allowance(1 << 20);
  fuzz.run([&](ByteSpan bytes) { return settings_come_back(file, text_of(bytes)); });
}

// ---- What processes say of themselves ----

TEST(Fuzz, StatesOfRoles) {
  Fuzz fuzz("cli-states");
  const File file("run/mount.json");
  const auto site = wire::Site::open_or_create(file.directory());
  ASSERT_TRUE(site.ok());
  fuzz.add(std::string_view(
      R"({"role":"mount","pid":12,"metrics":["unix:/run/x"],"figures":{"mountpoint":"/mnt","passthrough":"on","limitations":["one"],"bulk":"shm","requests":7}})"));
  fuzz.add(std::string_view(R"({"role":"mount","pid":12,"metrics":[],"figures":{}})"));
  fuzz.run([&](ByteSpan bytes) {
    file.write(text_of(bytes));
    const nlohmann::json roles = role_states(*site);
    if (!roles.contains("mount")) return false;
    // As `status`, `doctor` and `upgrade` use it, without a look at types.
    const nlohmann::json& state = roles["mount"];
    EXPECT_GT(state.value("pid", 0), 0);
    for (const auto& place : state.value("metrics", nlohmann::json::array()))
      (void)place.get<std::string>();
    const nlohmann::json figures = state.value("figures", nlohmann::json::object());
    for (const char* text : {"mountpoint", "passthrough", "bulk"}) (void)figures.value(text, "");
    for (const auto& lack : figures.value("limitations", nlohmann::json::array()))
      (void)lack.get<std::string>();
    return true;
  });
}

TEST(Fuzz, PagesOfConsoles) {
  Fuzz fuzz("cli-pages");
  fuzz.add(std::string_view(
      "# HELP a b\na_total{k=\"x\\\"\\\\\\ny\",more=\"1\"} 5\nb -1.5e300\nc NaN\n"));
  nlohmann::json profile{{"rows",
                          {{{"pid", 1},
                            {"process", "python"},
                            {"operation", "READ"},
                            {"errors", 0},
                            {"bytes", 4096},
                            {"total_ns", 1000},
                            {"buckets", std::vector<std::uint64_t>(metrics::kBuckets, 1)}}}},
                         {"dropped", 0}};
  ProfileTable table;
  ASSERT_TRUE(table.add(profile.dump()).ok());
  fuzz.add(profile.dump());
  fuzz.set_allowance(1 << 20);
  fuzz.run([](ByteSpan bytes) {
    Page page;
    const bool metrics = page.add(text_of(bytes)).ok();
    if (!metrics) {
      EXPECT_TRUE(page.empty());
    }
    (void)page.sum("a_total", {{"more", "1"}});
    (void)page.values_of("a_total", "k");
    ProfileTable profiles;
    const bool rows = profiles.add(text_of(bytes)).ok();
    if (!rows) {
      EXPECT_TRUE(profiles.rows().empty());
    }
    EXPECT_LE(profiles.by_operation().size(), profiles.rows().size());
    EXPECT_LE(profiles.by_process().size(), profiles.rows().size());
    (void)profiles.since(profiles);
    return metrics || rows;
  });
}

// ---- What was written down ----

TEST(Fuzz, AccessLogsAndWords) {
  Fuzz fuzz("cli-logs");
  const File file("log");
  client::AccessEntry entry;
  entry.operation = "rename";
  entry.path = "volumes/work/a b";
  entry.other = "volumes/work/c";
  fuzz.add(std::string(client::kAccessLogHeader) + "\n" + to_line(entry) + to_line(entry));
  const bench::Shown shown{"name", "/tmp/file:1", 7, 9};
  EXPECT_EQ(bench::word_of(*bench::shown_of(bench::word_of(shown))), bench::word_of(shown));
  fuzz.add(bench::word_of(shown));
  fuzz.run([&](ByteSpan bytes) {
    file.write(text_of(bytes));
    const auto log = read_access_log(file.path().string());
    if (taken(log)) {
      EXPECT_TRUE(std::ranges::is_sorted(*log, {}, &client::AccessEntry::at));
    }
    const auto word = bench::shown_of(std::string(text_of(bytes)));
    if (!taken(word)) return log.ok() && !log->empty();
    EXPECT_EQ(bench::word_of(*bench::shown_of(bench::word_of(*word))), bench::word_of(*word));
    return true;
  });
}

}  // namespace
}  // namespace starlane::cli
