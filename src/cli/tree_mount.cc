// dataset mount|umount: one published version, served by the kernel itself (EROFS) from two files
// of a Starlane mount (client/mount/kernel_tree.cc).
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli {
namespace fs = std::filesystem;
namespace {

constexpr long kErofsMagic = 0xE0F5E1E2;

struct Arguments {
  std::string version;
  std::string where;
};

/// The image and the device of a version, by its path on a Starlane mount.
struct TreeFiles {
  fs::path names, data;
};
Result<TreeFiles> files_of(const fs::path& version) {
  const TreeFiles files{version.parent_path() / ("." + version.filename().string() + ".names"),
                        version.parent_path() / ("." + version.filename().string() + ".data")};
  for (const fs::path& file : {files.names, files.data}) {
    if (::access(file.c_str(), R_OK) == 0) continue;
    if (errno != ENOENT) return system_error("cannot read " + file.string(), errno);
    return Status(Errc::invalid, version.string() +
                                     " is not a published version on a Starlane mount; give a path "
                                     "as /mnt/starlane/public/NAME/VERSION");
  }
  return files;
}

Status cannot_mount(int error) {
  if (error == EPERM) return {Errc::not_permitted, "mounting needs root: run it with sudo"};
  if (error == ENODEV)
    return {Errc::unsupported, "this kernel has no EROFS; use the version under public/ as it is"};
  return system_error("the kernel does not mount it (dmesg says why)", error);
}

/// A block device over a file; it goes with its last user.
class LoopDevice {
 public:
  static Result<LoopDevice> over(const fs::path& file) {
    const UniqueFd backing(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!backing) return system_error("cannot open " + file.string(), errno);
    const UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (!control) return system_error("cannot make a loop device", errno);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(backing.get());
    config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    for (int tries = 0; tries < 16; ++tries) {  // others take free ones too
      const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      LoopDevice loop;
      loop.path_ = "/dev/loop" + std::to_string(number);
      loop.held_ = UniqueFd(::open(loop.path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (number < 0 || !loop.held_) break;
      if (::ioctl(loop.held_.get(), LOOP_CONFIGURE, &config) == 0) return loop;
      if (errno != EBUSY) break;
    }
    return system_error("cannot make a loop device", errno);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  UniqueFd held_;
};

/// errno, or 0.
int mount_from(const fs::path& names, const fs::path& data, const fs::path& where) {
  const UniqueFd context(::fsopen("erofs", FSOPEN_CLOEXEC));
  const auto set = [&](const char* key, const fs::path& value) {
    return ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) == 0;
  };
  if (!context || !set("source", names) || !set("device", data)) return errno;
  if (::fsconfig(context.get(), FSCONFIG_SET_FLAG, "ro", nullptr, 0) != 0) return errno;
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return errno;
  constexpr unsigned kAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  const UniqueFd mounted(::fsmount(context.get(), FSMOUNT_CLOEXEC, kAttributes));
  if (!mounted ||
      ::move_mount(mounted.get(), "", AT_FDCWD, where.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return errno;
  return 0;
}

/// Before Linux 6.12 EROFS wants block devices; some later kernels refuse files of a mount that
/// passes reads through.
Status mount_tree(const TreeFiles& files, const fs::path& where) {
  int error = mount_from(files.names, files.data, where);
  if (error == ENOTBLK) {
    const LoopDevice names = SL_TRY(LoopDevice::over(files.names));
    const LoopDevice data = SL_TRY(LoopDevice::over(files.data));
    error = mount_from(names.path(), data.path(), where);
  }
  return error == 0 ? Status() : cannot_mount(error);
}

Status mount_version(bool json, const Arguments& arguments) {
  std::error_code failed;
  const fs::path version = fs::canonical(arguments.version, failed);
  if (failed) return system_error("cannot read " + arguments.version, failed.value());
  const fs::path where = fs::absolute(arguments.where);
  if (!fs::is_directory(where, failed))
    return {Errc::not_directory, where.string() + " is not a directory; make it first"};
  const TreeFiles files = SL_TRY(files_of(version));
  SL_TRY(mount_tree(files, where));
  const std::uint64_t names = fs::file_size(files.names, failed);
  if (json)
    std::printf("%s\n",
                nlohmann::json{{"version", version}, {"mounted", where}, {"names_bytes", names}}
                    .dump()
                    .c_str());
  else
    std::printf("%s %s at %s; its names take %s of memory; `starlane dataset umount %s` ends it\n",
                styled("mounted", Style::green).c_str(), version.c_str(), where.c_str(),
                human_bytes(names).c_str(), where.c_str());
  return {};
}

Status umount_version(const std::string& where) {
  struct statfs found {};
  if (::statfs(where.c_str(), &found) != 0) return system_error("cannot read " + where, errno);
  if (found.f_type != kErofsMagic)
    return {Errc::invalid, where + " is not where `dataset mount` mounted something"};
  if (::umount2(where.c_str(), UMOUNT_NOFOLLOW) == 0) return {};
  return errno == EPERM ? Status(Errc::not_permitted, "unmounting needs root: run it with sudo")
                        : not_unmounted(where, errno);
}

}  // namespace

void add_tree_mount_commands(Program& program, CLI::App& group) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add(
      group, "mount",
      "Mounts one version where you want it, served by the kernel itself: for trees of many small "
      "files, which then open and list as fast as local ones",
      "  starlane dataset mount /mnt/starlane/public/imagenet/v1 /data/imagenet\n",
      [&program, arguments] { return mount_version(program.globals().json, *arguments); });
  command->add_option("version", arguments->version, "Its path on a Starlane mount")->required();
  command->add_option("directory", arguments->where, "Where: a directory")->required();
  command = program.add(group, "umount", "Ends what `dataset mount` began", "",
                        [arguments] { return umount_version(arguments->where); });
  command->add_option("directory", arguments->where)->required();
}

}  // namespace starlane::cli
