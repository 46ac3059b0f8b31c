#include "common/errno.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace starlane {
namespace {

struct Row {
  Errc code;
  int number;
  std::string_view name;
};

// The first row of an errno is the one errc_of answers.
constexpr std::array kTable{
    Row{Errc::ok, 0, "ok"},
    Row{Errc::not_found, ENOENT, "not_found"},
    Row{Errc::exists, EEXIST, "exists"},
    Row{Errc::not_directory, ENOTDIR, "not_directory"},
    Row{Errc::is_directory, EISDIR, "is_directory"},
    Row{Errc::not_empty, ENOTEMPTY, "not_empty"},
    Row{Errc::no_space, ENOSPC, "no_space"},
    Row{Errc::quota, EDQUOT, "quota"},
    Row{Errc::read_only, EROFS, "read_only"},
    Row{Errc::access, EACCES, "access"},
    Row{Errc::not_permitted, EPERM, "not_permitted"},
    Row{Errc::invalid, EINVAL, "invalid"},
    Row{Errc::name_too_long, ENAMETOOLONG, "name_too_long"},
    Row{Errc::too_many_links, EMLINK, "too_many_links"},
    Row{Errc::cross_device, EXDEV, "cross_device"},
    Row{Errc::file_too_large, EFBIG, "file_too_large"},
    Row{Errc::unsupported, EOPNOTSUPP, "unsupported"},
    Row{Errc::not_implemented, ENOSYS, "not_implemented"},
    Row{Errc::no_attribute, ENODATA, "no_attribute"},
    Row{Errc::range, ERANGE, "range"},
    Row{Errc::stale_handle, ESTALE, "stale_handle"},
    Row{Errc::bad_handle, EBADF, "bad_handle"},
    Row{Errc::text_busy, ETXTBSY, "text_busy"},
    Row{Errc::loop, ELOOP, "loop"},
    Row{Errc::interrupted, EINTR, "interrupted"},
    Row{Errc::too_big, E2BIG, "too_big"},
    Row{Errc::no_device, ENXIO, "no_device"},
    Row{Errc::would_block, EAGAIN, "would_block"},
    Row{Errc::no_memory, ENOMEM, "no_memory"},
    Row{Errc::io, EIO, "io"},
    Row{Errc::deadlock, EDEADLK, "deadlock"},
    Row{Errc::no_locks, ENOLCK, "no_locks"},
    Row{Errc::busy, EBUSY, "busy"},
    Row{Errc::timeout, ETIMEDOUT, "timeout"},
    Row{Errc::conflict, EIO, "conflict"},
    Row{Errc::stale, EIO, "stale"},
    Row{Errc::unavailable, EIO, "unavailable"},
    Row{Errc::corrupt, EIO, "corrupt"},
    Row{Errc::fenced, EIO, "fenced"},
    Row{Errc::protocol, EPROTO, "protocol"},
    Row{Errc::unauthenticated, EACCES, "unauthenticated"},
};

}  // namespace

std::string_view name_of(Errc code) {
  for (const Row& row : kTable)
    if (row.code == code) return row.name;
  return "unknown";
}

int errno_of(Errc code) {
  for (const Row& row : kTable)
    if (row.code == code) return row.number;
  return EIO;
}

Errc errc_of(int error_number) {
  for (const Row& row : kTable)
    if (row.number == error_number) return row.code;
  return Errc::io;
}

Status system_error(std::string_view what, int error_number) {
  return Status(errc_of(error_number), std::string(what) + ": " + std::strerror(error_number));
}

}  // namespace starlane
