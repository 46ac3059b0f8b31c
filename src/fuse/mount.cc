#include "fuse/mount.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "common/errno.h"
#include "common/passed_fd.h"

extern char** environ;

namespace starlane::fuse {
namespace {

using namespace std::chrono_literals;

struct MountLine {
  std::string device_number, mountpoint, type;
};

// Octal escapes, as the kernel writes blanks in paths.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// All mounts, those at one place from the lowest to the topmost.
std::vector<MountLine> read_mounts() {
  std::vector<MountLine> mounts;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, point, word, type;
    words >> id >> parent >> number >> root >> point;
    while (words >> word && word != "-") {
    }
    words >> type;
    mounts.push_back({number, unescape(point), type});
  }
  return mounts;
}

// The topmost mount at exactly this path.
std::optional<MountLine> find_mount(const std::string& path) {
  std::optional<MountLine> found;
  for (MountLine& mount : read_mounts())
    if (mount.mountpoint == path) found = std::move(mount);
  return found;
}

// Links resolved in all but the last part, which may be a dead mount that no call may touch.
Result<std::string> absolute_path(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  if (trimmed.empty()) return Status(Errc::invalid, "an empty path is no mountpoint");
  if (trimmed == "/") return Status(Errc::invalid, "cannot mount on /");
  const std::size_t slash = trimmed.rfind('/');
  const std::string name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : trimmed.substr(0, slash);
  if (name == "." || name == "..") {
    char whole[PATH_MAX];
    if (::realpath(trimmed.c_str(), whole) == nullptr) return system_error(trimmed, errno);
    return std::string(whole);
  }
  char resolved[PATH_MAX];
  if (::realpath(parent.c_str(), resolved) == nullptr)
    return system_error("cannot find " + parent, errno);
  const std::string base(resolved);
  const std::string joined = base == "/" ? "/" + name : base + "/" + name;
  if (find_mount(joined)) return joined;
  if (::realpath(joined.c_str(), resolved) != nullptr)
    return std::string(resolved);  // the last part is a link
  return joined;
}

// In a child, since the call hangs when the mount's process does; the child can be killed then.
bool answers(const std::string& path) {
  const pid_t child = ::fork();
  if (child < 0) return true;
  if (child == 0) {
    struct statfs figures {};  // unlike attributes, the kernel does not remember them
    ::_exit(::statfs(path.c_str(), &figures) != 0 && (errno == ENOTCONN || errno == ECONNABORTED)
                ? 1
                : 0);
  }
  for (int tries = 0; tries < 200; ++tries) {
    int result = 0;
    if (::waitpid(child, &result, WNOHANG) == child)
      return !(WIFEXITED(result) && WEXITSTATUS(result) == 1);
    std::this_thread::sleep_for(10ms);
  }
  ::kill(child, SIGKILL);
  int ignored = 0;
  ::waitpid(child, &ignored, 0);
  return true;
}

Status run_fusermount(const std::vector<std::string>& arguments, int communication_fd) {
  std::vector<std::string> words = {"fusermount3"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  if (communication_fd >= 0)
    variables.push_back("_FUSE_COMMFD=" + std::to_string(communication_fd));
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  const int failure =
      ::posix_spawnp(&child, "fusermount3", nullptr, nullptr, argv.data(), environment.data());
  if (failure == ENOENT) {
    return Status(Errc::not_found,
                  "fusermount3 is not installed: run as root, or install the package fuse3");
  }
  if (failure != 0) return system_error("cannot run fusermount3", failure);
  int result = 0;
  while (::waitpid(child, &result, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
    return Status(Errc::not_permitted, "fusermount3 refused (its reason is above)");
  }
  return {};
}

Result<UniqueFd> receive_descriptor(int socket) {
  char byte = 0;
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  PassedFd rights;
  rights.make_room(message);
  ssize_t got = 0;
  do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  UniqueFd device = got > 0 ? PassedFd::taken_from(message) : UniqueFd();
  if (!device) return Status(Errc::io, "fusermount3 passed no descriptor of /dev/fuse");
  return device;
}

Result<UniqueFd> open_device() {
  UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (device) return device;
  const int failure = errno;
  if (failure == ENOENT || failure == ENXIO || failure == ENODEV) {
    return Status(Errc::no_device,
                  "this machine has no /dev/fuse: load the module (modprobe fuse), or start the "
                  "container with "
                  "--device /dev/fuse --cap-add SYS_ADMIN");
  }
  if (failure == EACCES || failure == EPERM) {
    return Status(
        Errc::access,
        "this user may not open /dev/fuse: run as root, or let root do chmod 666 /dev/fuse");
  }
  return system_error("cannot open /dev/fuse", failure);
}

Result<UniqueFd> mount_unprivileged(const std::string& path, std::uint32_t max_read,
                                    bool for_all_users) {
  SL_TRY(open_device());  // fusermount3 opens it with this user's rights
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return system_error("socketpair", errno);
  const UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  ::fcntl(ours.get(), F_SETFD, FD_CLOEXEC);
  std::string options =
      "fsname=starlane,subtype=starlane,default_permissions,max_read=" + std::to_string(max_read);
  if (for_all_users) options += ",allow_other";
  SL_TRY(run_fusermount({"-o", options, "--", path}, theirs.get()));
  theirs.reset();
  return receive_descriptor(ours.get());
}

Result<UniqueFd> mount_privileged(const std::string& path, std::uint32_t max_read) {
  UniqueFd device = SL_TRY(open_device());
  std::ostringstream options;
  options << "fd=" << device.get()
          << ",rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read="
          << max_read;
  if (::mount("starlane", path.c_str(), kFileSystemType, MS_NOSUID | MS_NODEV,
              options.str().c_str()) != 0) {
    const int failure = errno;
    if (failure == EPERM) {
      return Status(Errc::not_permitted, "mounting on " + path +
                                             " is not permitted: the process lacks CAP_SYS_ADMIN "
                                             "(in a container: --cap-add SYS_ADMIN)");
    }
    return system_error("cannot mount on " + path, failure);
  }
  return device;
}

Status check_directory(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT)
      return Status(Errc::not_found,
                    "mountpoint " + path + " does not exist: create the directory");
    return system_error("mountpoint " + path, errno);
  }
  if (!S_ISDIR(status.st_mode))
    return Status(Errc::not_directory, "mountpoint " + path + " is not a directory");
  return {};
}

// A dead mount of ours is taken away; a live one is refused.
Status clear_mountpoint(const std::string& path) {
  for (int layers = 0; layers < 64; ++layers) {
    switch (state_of_mount(path)) {
      case MountState::none:
        return check_directory(path);
      case MountState::live:
        return Status(
            Errc::busy,
            path +
                " is a Starlane mount already: stop the process that serves it, or unmount it "
                "(umount " +
                path + ")");
      case MountState::dead:
        unmount(path);
    }
  }
  return Status(Errc::busy,
                "dead Starlane mounts on " + path + " cannot be taken away: run umount -l " + path);
}

bool may_mount() { return ::geteuid() == 0; }

bool write_file(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Of the control file system, which need not be mounted anywhere.
UniqueFd open_control(const std::string& name) {
  UniqueFd file(::open(("/sys/fs/fuse/connections/" + name).c_str(), O_WRONLY | O_CLOEXEC));
  if (file) return file;
  const UniqueFd context(::fsopen("fusectl", FSOPEN_CLOEXEC));
  if (!context || ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return {};
  const UniqueFd root(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  return root ? UniqueFd(::openat(root.get(), name.c_str(), O_WRONLY | O_CLOEXEC)) : UniqueFd();
}

}  // namespace

MountState state_of_mount(const std::string& path) {
  const auto absolute = absolute_path(path);
  if (!absolute.ok()) return MountState::none;
  const auto found = find_mount(absolute.value());
  if (!found || found->type != kFileSystemType) return MountState::none;
  return answers(absolute.value()) ? MountState::live : MountState::dead;
}

std::string device_number_of(const std::string& path) {
  const auto absolute = absolute_path(path);
  const auto found = absolute.ok() ? find_mount(absolute.value()) : std::nullopt;
  return found && found->type == kFileSystemType ? found->device_number : std::string();
}

Mount::Mount(Mount&& other) noexcept { *this = std::move(other); }

Mount& Mount::operator=(Mount&& other) noexcept {
  if (this == &other) return *this;
  detach();
  device_ = std::move(other.device_);
  mountpoint_ = std::move(other.mountpoint_);
  device_number_ = std::move(other.device_number_);
  privileged_ = other.privileged_;
  for_all_users_ = other.for_all_users_;
  attached_ = std::exchange(other.attached_, false);
  return *this;
}

Mount::~Mount() { detach(); }

Result<Mount> Mount::open(const MountOptions& options) {
  Mount mount;
  mount.mountpoint_ = SL_TRY(absolute_path(options.mountpoint));
  SL_TRY(clear_mountpoint(mount.mountpoint_));
  mount.privileged_ = may_mount();
  if (mount.privileged_) {
    mount.device_ = SL_TRY(mount_privileged(mount.mountpoint_, options.max_read));
  } else {
    auto device = mount_unprivileged(mount.mountpoint_, options.max_read, true);
    if (device.code() == Errc::not_permitted) {  // user_allow_other is not in /etc/fuse.conf
      mount.for_all_users_ = false;
      device = mount_unprivileged(mount.mountpoint_, options.max_read, false);
    }
    mount.device_ = SL_TRY(std::move(device));
  }
  mount.attached_ = true;
  const auto line = find_mount(mount.mountpoint_);
  if (line) mount.device_number_ = line->device_number;
  return mount;
}

Mount Mount::adopt(UniqueFd device, const Facts& facts) {
  Mount mount;
  mount.device_ = std::move(device);
  mount.mountpoint_ = facts.mountpoint;
  mount.device_number_ = facts.device_number;
  mount.privileged_ = facts.privileged;
  mount.for_all_users_ = facts.for_all_users;
  mount.attached_ = true;
  return mount;
}

Status Mount::set_read_ahead(std::uint32_t kib) const {
  const std::string path = "/sys/class/bdi/" + device_number_ + "/read_ahead_kb";
  if (device_number_.empty() || !write_file(path, std::to_string(kib))) {
    return Status(Errc::unsupported, "cannot set the read-ahead of the mount in " + path);
  }
  return {};
}

Status Mount::abort() const {
  const std::size_t colon = device_number_.find(':');
  if (colon == std::string::npos)
    return Status(Errc::unsupported, "the mount's device number is not known");
  const UniqueFd control = open_control(device_number_.substr(colon + 1) + "/abort");
  if (!control || ::write(control.get(), "1", 1) != 1) {
    return Status(Errc::unsupported, "cannot reach the control file of the mount's connection");
  }
  return {};
}

std::int64_t Mount::waiting() const {
  std::int64_t count = -1;
  const std::size_t colon = device_number_.find(':');
  if (colon != std::string::npos)
    std::ifstream("/sys/fs/fuse/connections/" + device_number_.substr(colon + 1) + "/waiting") >>
        count;
  return count;
}

void Mount::detach() {
  if (std::exchange(attached_, false)) unmount(mountpoint_);
}

void unmount(const std::string& target) {
  if (may_mount()) {
    ::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  } else {
    static_cast<void>(run_fusermount({"-u", "-z", "-q", "--", target}, -1));
  }
}

void take_away(int device, const std::string& device_number) {
  pollfd connection{device, POLLIN, 0};
  if (::poll(&connection, 1, 0) < 0 || (connection.revents & POLLERR) != 0) return;
  const std::vector<MountLine> mounts = read_mounts();
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount)
    if (mount->device_number == device_number && mount->type == kFileSystemType)
      unmount(mount->mountpoint);
}

Status bind_mount(const std::string& source, const std::string& target) {
  const std::string place = SL_TRY(absolute_path(target));
  SL_TRY(clear_mountpoint(place));
  if (!may_mount())
    return Status(Errc::not_permitted, "only root can show " + source + " at " + target);
  if (::mount(source.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return system_error("cannot show " + source + " at " + target, errno);
  }
  return {};
}

}  // namespace starlane::fuse
