#include "net/key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "codec/mac.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::net {
namespace {

constexpr std::size_t kDigits = 64;

std::string hex_of(const Key& key) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : key.bytes) {
    text += kHex[std::to_integer<unsigned>(byte) >> 4];
    text += kHex[std::to_integer<unsigned>(byte) & 15];
  }
  return text + "\n";
}

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

Status write_durably(int fd, const std::string& path, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("cannot write the key file " + path, errno);
  }
  if (::fsync(fd) != 0) return system_error("cannot sync the key file " + path, errno);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  UniqueFd directory(
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) {
    return system_error("cannot sync the directory of the key file " + path, errno);
  }
  return {};
}

Status check_owner(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot examine the key file " + path, errno);
  if (!S_ISREG(info.st_mode))
    return Status(Errc::invalid, path + " is not a regular file, so it is no key file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Status(Errc::access, "the key file " + path + " belongs to another user (uid " +
                                    std::to_string(info.st_uid) + ")");
  }
  if ((info.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", info.st_mode & 07777);
    return Status(Errc::access, "the key file " + path + " is open to others (mode " + mode +
                                    "); run: chmod 600 " + path);
  }
  return {};
}

}  // namespace

Status make_key_file(const std::string& path) {
  Key key;
  SL_TRY(fill_random(key.bytes));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("cannot create the key file " + path, errno);
  const Status written = write_durably(fd.get(), path, hex_of(key));
  if (!written.ok()) ::unlink(path.c_str());
  return written;
}

Result<Key> load_key(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return system_error("cannot open the key file " + path, errno);
  SL_TRY(check_owner(fd.get(), path));
  char text[kDigits + 2];
  const ssize_t length = ::read(fd.get(), text, sizeof text);
  if (length < 0) return system_error("cannot read the key file " + path, errno);
  const bool ended = length == kDigits || (length == kDigits + 1 && text[kDigits] == '\n');
  Key key;
  for (std::size_t i = 0; ended && i < kDigits; i += 2) {
    const int high = value_of(text[i]), low = value_of(text[i + 1]);
    if (high < 0 || low < 0)
      return Status(Errc::invalid, path + " holds no key: it needs 64 hexadecimal digits");
    key.bytes[i / 2] = static_cast<std::byte>(high << 4 | low);
  }
  if (!ended) return Status(Errc::invalid, path + " holds no key: it needs 64 hexadecimal digits");
  return key;
}

}  // namespace starlane::net
