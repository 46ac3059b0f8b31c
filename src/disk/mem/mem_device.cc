#include "disk/mem/mem_device.h"

#include <algorithm>

namespace starlane {
namespace {

constexpr std::uint64_t kSector = 512;

Status power_is_gone() { return Status(Errc::io, "the device has no power"); }

}  // namespace

MemDevice::MemDevice(Options options)
    : traits_(options.traits), rng_(options.seed), capacity_(options.capacity_bytes) {}

std::uint64_t MemDevice::changes() const {
  MutexLock lock(m_);
  return changes_;
}

void MemDevice::cut_after(std::uint64_t n) {
  MutexLock lock(m_);
  cut_at_ = changes_ + n;
}

bool MemDevice::is_cut() const {
  MutexLock lock(m_);
  return cut_;
}

void MemDevice::fail_next(Action action, Errc code, std::uint64_t count) {
  MutexLock lock(m_);
  failing_[action] = {code, count};
}

void MemDevice::fail_one_in(std::uint64_t n) {
  MutexLock lock(m_);
  fail_one_in_ = n;
}

void MemDevice::set_capacity(std::uint64_t bytes) {
  MutexLock lock(m_);
  capacity_ = bytes;
}

Status MemDevice::begin(Action action, std::uint64_t life) {
  if (cut_ || life != life_) return power_is_gone();
  if (action != Action::read) {
    ++changes_;
    if (cut_at_ && changes_ >= *cut_at_) {
      cut_ = true;
      tearing_ = true;
    }
  }
  if (auto it = failing_.find(action); it != failing_.end() && it->second.second > 0) {
    --it->second.second;
    return Status(it->second.first, "injected failure");
  }
  if (fail_one_in_ != 0 && rng_.one_in(fail_one_in_)) return Status(Errc::io, "injected failure");
  return {};
}

Status MemDevice::check_alignment(const DiskOperation& op) const {
  std::uint64_t bits = op.offset;
  for (std::size_t i = 0; i < op.count; ++i) {
    bits |= op.pieces[i].iov_len | reinterpret_cast<std::uintptr_t>(op.pieces[i].iov_base);
  }
  if (bits % traits_.alignment == 0) return {};
  return Status(Errc::invalid, "a transfer is not aligned");
}

Status MemDevice::transfer(DiskOperation& op, Inode& inode, std::uint64_t life) {
  using Kind = DiskOperation::Kind;
  MutexLock lock(m_);
  SL_TRY(check_alignment(op));
  SL_TRY(begin(op.kind == Kind::read    ? Action::read
               : op.kind == Kind::write ? Action::write
                                        : Action::sync,
               life));
  if (op.kind == Kind::write) return write_pieces(op, inode);
  if (op.kind == Kind::sync) {
    const bool cut = std::exchange(tearing_, false);
    if (!cut || rng_.one_in(2)) make_durable(inode);
    return cut ? power_is_gone() : Status();
  }
  for (std::size_t i = 0; i < op.count; ++i) {
    const iovec& piece = op.pieces[i];
    if (op.offset + piece.iov_len > inode.now.size) return Status(Errc::io, "a file ends before");
    read_image(inode.now, op.offset, {static_cast<std::byte*>(piece.iov_base), piece.iov_len});
    op.offset += piece.iov_len;
  }
  return {};
}

Status MemDevice::write_pieces(const DiskOperation& op, Inode& inode) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < op.count; ++i) {
    const auto* from = static_cast<const std::byte*>(op.pieces[i].iov_base);
    bytes.insert(bytes.end(), from, from + op.pieces[i].iov_len);
  }
  if (!std::exchange(tearing_, false)) return write_bytes(inode, op.offset, bytes);
  // The sectors of the cut write arrive in any order.
  for (std::uint64_t at = 0; at < bytes.size(); at += kSector) {
    if (rng_.one_in(2)) continue;
    const ByteSpan sector = ByteSpan(bytes).subspan(at, std::min(kSector, bytes.size() - at));
    SL_TRY(write_bytes(inode, op.offset + at, sector));
  }
  return power_is_gone();
}

Status MemDevice::write_bytes(Inode& inode, std::uint64_t offset, ByteSpan bytes) {
  if (bytes.empty()) return {};
  std::uint64_t fresh = 0;
  for (std::uint64_t page = offset / kDiskPage; page * kDiskPage < offset + bytes.size(); ++page) {
    inode.dirty[page] = true;
    fresh += inode.now.pages.contains(page) ? 0 : kDiskPage;
  }
  if (used_bytes() + fresh > capacity_) return Status(Errc::no_space, "the device is full");
  write_image(inode.now, offset, bytes);
  return {};
}

std::uint64_t MemDevice::used_bytes() const {
  std::uint64_t pages = 0;
  for (const auto& [name, inode] : names_) pages += inode->now.pages.size();
  return pages * kDiskPage;
}

void MemDevice::read_image(const Image& image, std::uint64_t offset, MutableByteSpan out) {
  while (!out.empty()) {
    const std::uint64_t inside = offset % kDiskPage;
    const std::size_t n = std::min<std::size_t>(out.size(), kDiskPage - inside);
    const auto it = image.pages.find(offset / kDiskPage);
    if (it == image.pages.end()) {
      std::fill_n(out.begin(), n, std::byte{0});
    } else {
      std::copy_n(it->second.begin() + static_cast<std::ptrdiff_t>(inside), n, out.begin());
    }
    out = out.subspan(n);
    offset += n;
  }
}

void MemDevice::write_image(Image& image, std::uint64_t offset, ByteSpan bytes) {
  image.size = std::max(image.size, offset + bytes.size());
  while (!bytes.empty()) {
    const std::uint64_t inside = offset % kDiskPage;
    const std::size_t n = std::min<std::size_t>(bytes.size(), kDiskPage - inside);
    Page& page = image.pages[offset / kDiskPage];
    std::copy_n(bytes.begin(), n, page.begin() + static_cast<std::ptrdiff_t>(inside));
    bytes = bytes.subspan(n);
    offset += n;
  }
}

void MemDevice::make_durable(Inode& inode) {
  inode.durable.size = inode.now.size;
  for (const auto& [page, is_dirty] : inode.dirty) {
    const auto it = inode.now.pages.find(page);
    if (it == inode.now.pages.end())
      inode.durable.pages.erase(page);
    else
      inode.durable.pages[page] = it->second;
  }
  inode.dirty.clear();
}

void MemDevice::tear_inode(Inode& inode, Crash how) {
  if (how == Crash::tear) {
    if (rng_.one_in(2)) inode.durable.size = inode.now.size;
    for (const auto& [page, is_dirty] : inode.dirty) {
      const auto it = inode.now.pages.find(page);
      if (it == inode.now.pages.end()) {
        if (rng_.one_in(2)) inode.durable.pages.erase(page);
        continue;
      }
      for (std::uint64_t at = 0; at < kDiskPage; at += kSector) {
        if (rng_.one_in(2)) continue;
        const auto from = it->second.begin() + static_cast<std::ptrdiff_t>(at);
        Page& kept = inode.durable.pages[page];
        std::copy_n(from, kSector, kept.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  std::erase_if(inode.durable.pages,
                [&](const auto& page) { return page.first * kDiskPage >= inode.durable.size; });
  inode.now = inode.durable;
  inode.dirty.clear();
}

void MemDevice::tear_names(Crash how) {
  if (how == Crash::tear) {
    for (const auto& [name, inode] : names_) {
      if (rng_.one_in(2)) durable_names_[name] = inode;
    }
    for (auto it = durable_names_.begin(); it != durable_names_.end();) {
      const bool removal_arrives = !names_.contains(it->first) && rng_.one_in(2);
      it = removal_arrives ? durable_names_.erase(it) : std::next(it);
    }
  }
  names_ = durable_names_;
}

void MemDevice::crash(Crash how) {
  MutexLock lock(m_);
  if (how != Crash::kill) {
    tear_names(how);
    for (auto& [name, inode] : names_) tear_inode(*inode, how);
  }
  ++life_;
  cut_ = locked_ = tearing_ = false;
  cut_at_.reset();
  failing_.clear();
}

bool MemDevice::flip(const std::string& name, std::uint64_t offset, std::byte mask) {
  MutexLock lock(m_);
  const auto it = names_.find(name);
  if (it == names_.end() || offset >= it->second->now.size) return false;
  for (Image* image : {&it->second->now, &it->second->durable}) {
    const auto page = image->pages.find(offset / kDiskPage);
    if (page != image->pages.end()) page->second[offset % kDiskPage] ^= mask;
  }
  return true;
}

void MemDevice::overwrite(const std::string& name, const std::string& contents) {
  MutexLock lock(m_);
  auto inode = std::make_shared<Inode>();
  write_image(inode->now, 0, bytes_of(contents));
  inode->durable = inode->now;
  names_[name] = durable_names_[name] = inode;
}

}  // namespace starlane
