// doctor: what this machine offers, which fast paths that allows, and which are on in a running
// site.
#include <cstdio>
#include <filesystem>

#include "cli/command.h"
#include "cli/doctor_report.h"
#include "cli/role_states.h"
#include "cli/terminal.h"

namespace starlane::cli {
namespace {

using doctor::Check;
using doctor::Verdict;
using nlohmann::json;

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::warning:
      return "warning";
    case Verdict::missing:
      return "missing";
  }
  return "";
}

Style style_of(Verdict verdict) {
  return verdict == Verdict::ok        ? Style::green
         : verdict == Verdict::warning ? Style::yellow
                                       : Style::red;
}

Check path_is(const std::string& what, bool on, const std::string& found,
              const std::string& remedy) {
  return {"fast paths", what, on ? Verdict::ok : Verdict::warning, found, on ? "" : remedy};
}

void add_mount(const json& figures, std::vector<Check>& out) {
  const std::string passthrough = figures.value("passthrough", "");
  out.push_back(path_is("passthrough of " + figures.value("mountpoint", "?"), passthrough == "on",
                        passthrough, "See the lines on fuse above, and --no-passthrough."));
  for (const json& lack : figures.value("limitations", json::array()))
    out.push_back(path_is("limit of the mount", false, lack.get<std::string>(),
                          "See the lines on fuse above."));
  out.push_back(
      {"fast paths", "bulk between processes", Verdict::ok, figures.value("bulk", ""), ""});
}

void add_store(const json& figures, std::vector<Check>& out) {
  for (const auto& [name, value] : figures.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const bool direct =
        text.find("io_uring") != std::string::npos || text.find("tmpfs") != std::string::npos;
    out.push_back(
        path_is("device of " + name, direct, text,
                "io_uring with O_DIRECT would be faster: see io_uring above, and use a local "
                "file system that has O_DIRECT."));
  }
}

/// Of what runs here, by what it last said of itself.
void add_running(const wire::Site& site, std::vector<Check>& out) {
  const json roles = role_states(site);
  const auto figures = [&](const char* role) {
    return roles.value(role, json::object()).value("figures", json::object());
  };
  if (roles.contains("mount")) add_mount(figures("mount"), out);
  if (roles.contains("store")) add_store(figures("store"), out);
  if (roles.empty())
    out.push_back(
        {"fast paths", "running site", Verdict::ok, "nothing of this site runs here now", ""});
}

struct Wanted {
  std::vector<std::string> directories;
  bool no_mount = false;
};

Status run(const Program& program, const Wanted& wanted) {
  const auto checks = examine_site(program, wanted.directories, !wanted.no_mount);
  std::printf("%s", program.globals().json ? (checks_json(checks).dump() + "\n").c_str()
                                           : checks_text(checks).c_str());
  for (const Check& check : checks)
    if (check.verdict == Verdict::missing)
      return Status(Errc::unsupported, "something that Starlane needs is missing here: " +
                                           check.what + ", " + check.found);
  return {};
}

}  // namespace

std::vector<Check> examine_site(const Program& program, std::vector<std::string> directories,
                                bool try_mount) {
  const Result<wire::Site> site = program.site();
  if (site.ok()) directories.insert(directories.begin(), site->directory().string());
  auto checks = doctor::examine({.root = "/", .directories = directories, .try_mount = try_mount});
#ifdef SL_HAVE_UCX
  const bool devices = std::filesystem::exists("/sys/class/infiniband");
  checks.push_back({"network", "UCX", Verdict::ok,
                    devices ? "built in; RDMA devices are there" : "built in; no RDMA device here",
                    ""});
#else
  checks.push_back({"network", "UCX", Verdict::warning, "not built in",
                    "Build where the package libucx-dev is installed, for --ucx."});
#endif
  if (site.ok()) add_running(*site, checks);
  return checks;
}

std::string checks_text(const std::vector<Check>& checks) {
  std::string out, topic;
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.what.size());
  for (const Check& check : checks) {
    if (check.topic != topic)
      out += (topic.empty() ? "" : "\n") + styled(check.topic, Style::bold) + "\n";
    topic = check.topic;
    const std::string verdict = name_of(check.verdict);
    out += "  " + styled(verdict, style_of(check.verdict)) + std::string(9 - verdict.size(), ' ') +
           check.what + std::string(width + 2 - check.what.size(), ' ') + check.found + "\n";
    if (!check.remedy.empty())
      out += std::string(11, ' ') + styled(check.remedy, Style::dim) + "\n";
  }
  return out;
}

json checks_json(const std::vector<Check>& checks) {
  json out = json::array();
  for (const Check& check : checks)
    out.push_back({{"topic", check.topic},
                   {"what", check.what},
                   {"verdict", name_of(check.verdict)},
                   {"found", check.found},
                   {"remedy", check.remedy}});
  return out;
}

void add_doctor_command(Program& program) {
  const auto wanted = std::make_shared<Wanted>();
  CLI::App* command =
      program.add(program.app(), "doctor", "What this machine offers, and which fast paths are on",
                  "  starlane doctor\n"
                  "  starlane --dir /srv/starlane doctor /disk1 /disk2\n"
                  "Works without a site. Mounts something on a directory in /tmp for a moment, to "
                  "hear what the kernel "
                  "offers.\n",
                  [&program, wanted] { return run(program, *wanted); });
  command->add_option("directory", wanted->directories, "Where data is to lie: also looked at");
  command->add_flag("--no-mount", wanted->no_mount, "Do not mount anything");
}

}  // namespace starlane::cli
