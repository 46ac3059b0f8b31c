#include "doctor/doctor.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace starlane::doctor {
namespace {

namespace fs = std::filesystem;

/// A machine of our own making: files below a root.
class FakeMachine {
 public:
  FakeMachine() {
    char name[] = "/tmp/starlane-doctor-XXXXXX";
    root_ = ::mkdtemp(name);
    set("proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:   12000000 kB\n");
    set("proc/filesystems", "nodev\ttmpfs\n");
    set("proc/self/cgroup", "0::/jobs/one\n");
    set("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    set("sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n");
    set("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    set("proc/sys/kernel/yama/ptrace_scope", "1\n");
    set("proc/sys/kernel/io_uring_disabled", "0\n");
  }
  ~FakeMachine() { fs::remove_all(root_); }
  void set(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void drop(const std::string& file) const { fs::remove_all(root_ / file); }
  Check find(const std::string& what) const {
    const auto checks = examine({.root = root_, .directories = {}, .try_mount = false});
    const auto at = std::ranges::find(checks, what, &Check::what);
    return at == checks.end() ? Check{"", "not checked", Verdict::ok, "", ""} : *at;
  }
  Verdict verdict(const std::string& what) const { return find(what).verdict; }

 private:
  fs::path root_;
};

TEST(Doctor, AGoodMachineHasNothingToSay) {
  const FakeMachine machine;
  for (const Check& check :
       {machine.find("huge pages of tmpfs"), machine.find("clock source"),
        machine.find("ptrace scope"), machine.find("io_uring"), machine.find("available"),
        machine.find("tmpfs"), machine.find("control group memory"),
        machine.find("limits of fs.fuse")}) {
    EXPECT_NE(check.what, "not checked");
    EXPECT_EQ(check.verdict, Verdict::ok) << check.what << ": " << check.found;
  }
}

struct Ailment {
  const char* file;
  const char* text;  // null: the file is not there
  const char* what;  // the check that tells of it
  Verdict verdict;
};
const Ailment kAilments[] = {
    {"sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise never [deny]\n",
     "huge pages of tmpfs", Verdict::warning},
    {"sys/kernel/mm/transparent_hugepage", nullptr, "huge pages of tmpfs", Verdict::warning},
    {"sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n",
     "transparent huge pages", Verdict::warning},
    {"sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n", "clock source",
     Verdict::warning},
    {"proc/sys/kernel/yama/ptrace_scope", "3\n", "ptrace scope", Verdict::warning},
    {"proc/sys/kernel/io_uring_disabled", "2\n", "io_uring", Verdict::warning},
    {"proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 900000 kB\n", "available",
     Verdict::warning},
    {"proc/filesystems", "nodev\tsysfs\n", "tmpfs", Verdict::missing},
    {"proc/sys/fs/fuse/max_pages_limit", "32\n", "max_pages_limit", Verdict::warning},
    {"proc/sys/fs/fuse/max_request_timeout", "60\n", "max_request_timeout", Verdict::warning},
    {"sys/fs/cgroup/jobs/one/memory.max", "536870912\n", "control group memory", Verdict::warning},
    {"sys/fs/cgroup/jobs/memory.max", "536870912\n", "control group memory", Verdict::warning},
};

TEST(Doctor, EachAilmentIsFoundWithItsRemedy) {
  for (const Ailment& ailment : kAilments) {
    const FakeMachine machine;
    ailment.text == nullptr ? machine.drop(ailment.file) : machine.set(ailment.file, ailment.text);
    const Check check = machine.find(ailment.what);
    EXPECT_EQ(check.verdict, ailment.verdict) << ailment.file;
    EXPECT_FALSE(check.remedy.empty()) << ailment.file;
    EXPECT_FALSE(check.found.empty()) << ailment.file;
  }
}

TEST(Doctor, AGroupWithoutALimitHasNone) {
  const FakeMachine machine;
  machine.set("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  EXPECT_EQ(machine.find("control group memory").found, "no limit");
  machine.set("sys/fs/cgroup/jobs/one/memory.max", "8589934592\n");
  EXPECT_EQ(machine.find("control group memory").found, "8.0 GiB of 15.6 GiB");
  EXPECT_EQ(machine.verdict("control group memory"), Verdict::ok);
}

TEST(Doctor, ThisMachineIsDescribedTruly) {
  const auto checks =
      examine({.root = "/", .directories = {"/tmp", "/nowhere"}, .try_mount = true});
  const auto find = [&](const std::string& what) {
    const auto at = std::ranges::find(checks, what, &Check::what);
    EXPECT_NE(at, checks.end()) << what;
    return at == checks.end() ? Check{} : *at;
  };
  utsname name{};
  ::uname(&name);
  EXPECT_EQ(find("kernel").found, name.release);
  EXPECT_EQ(find("/dev/fuse").verdict == Verdict::ok, ::access("/dev/fuse", R_OK | W_OK) == 0);
  EXPECT_EQ(find("/nowhere").verdict, Verdict::missing);
  EXPECT_FALSE(find("device of /tmp").found.empty());
  find("open files");
  for (const Check& check : checks)
    EXPECT_EQ(check.remedy.empty(), check.verdict == Verdict::ok) << check.what;
  for (const auto& left : fs::directory_iterator("/tmp"))
    EXPECT_FALSE(left.path().filename().string().starts_with("starlane-probe-")) << left.path();
}

}  // namespace
}  // namespace starlane::doctor
