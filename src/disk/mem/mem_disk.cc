#include "disk/mem/mem_device.h"

namespace starlane {

class MemFile final : public DiskFile {
 public:
  MemFile(MemDevice& device, std::uint64_t life, MemDevice::InodePtr inode)
      : device_(device), life_(life), inode_(std::move(inode)) {}

  void start(DiskOperation& op) override { op.batch->done(device_.transfer(op, *inode_, life_)); }
  Status read(std::uint64_t offset, MutableByteSpan out) override {
    return run(DiskOperation::Kind::read, offset, out, {});
  }
  Status write(std::uint64_t offset, ByteSpan bytes) override {
    return run(DiskOperation::Kind::write, offset, bytes, {});
  }
  Status write(std::uint64_t offset, ByteSpan first, ByteSpan second) override {
    return run(DiskOperation::Kind::write, offset, first, second);
  }
  Status sync() override { return run(DiskOperation::Kind::sync, 0, {}, {}); }

  Status punch(std::uint64_t offset, std::uint64_t length) override {
    MutexLock lock(device_.m_);
    if ((offset | length) % kDiskPage != 0) return Status(Errc::invalid, "a hole is not aligned");
    SL_TRY(device_.begin(MemDevice::Action::punch, life_));
    const bool cut = std::exchange(device_.tearing_, false);
    for (std::uint64_t at = offset; at < offset + length; at += kDiskPage) {
      if (cut && device_.rng_.one_in(2)) continue;
      if (inode_->now.pages.erase(at / kDiskPage) != 0) inode_->dirty[at / kDiskPage] = true;
    }
    return cut ? Status(Errc::io, "the device has no power") : Status();
  }
  Status reserve(std::uint64_t offset, std::uint64_t length) override {
    const std::uint64_t have = SL_TRY(size());
    return have >= offset + length ? Status() : truncate(offset + length);
  }
  Status truncate(std::uint64_t length) override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::other, life_));
    if (std::exchange(device_.tearing_, false)) return Status(Errc::io, "the device has no power");
    auto& now = inode_->now;
    now.size = length;
    for (auto it = now.pages.begin(); it != now.pages.end();) {
      if (it->first * kDiskPage < length) {
        ++it;
        continue;
      }
      inode_->dirty[it->first] = true;
      it = now.pages.erase(it);
    }
    return {};
  }
  Result<std::uint64_t> size() const override {
    MutexLock lock(device_.m_);
    return inode_->now.size;
  }
  Result<std::uint64_t> allocated() const override {
    MutexLock lock(device_.m_);
    return inode_->now.pages.size() * kDiskPage;
  }

 private:
  Status run(DiskOperation::Kind kind, std::uint64_t offset, ByteSpan first, ByteSpan second) {
    DiskOperation op;
    op.kind = kind;
    op.offset = offset;
    for (const ByteSpan piece : {first, second}) {
      if (piece.empty()) continue;
      op.pieces[op.count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
    return device_.transfer(op, *inode_, life_);
  }

  MemDevice& device_;
  const std::uint64_t life_;
  const MemDevice::InodePtr inode_;
};

class MemDisk final : public Disk {
 public:
  MemDisk(MemDevice& device, std::uint64_t life) : device_(device), life_(life) {}
  ~MemDisk() override {
    MutexLock lock(device_.m_);
    if (holds_lock_ && life_ == device_.life_) device_.locked_ = false;
  }

  Result<std::unique_ptr<DiskFile>> open(const std::string& name, OpenFile how) override {
    MutexLock lock(device_.m_);
    const bool create = how == OpenFile::create;
    SL_TRY(device_.begin(create ? MemDevice::Action::other : MemDevice::Action::read, life_));
    if (std::exchange(device_.tearing_, false)) return Status(Errc::io, "the device has no power");
    auto it = device_.names_.find(name);
    if (create && it != device_.names_.end()) return Status(Errc::exists, name + " exists");
    if (!create && it == device_.names_.end()) return Status(Errc::not_found, "no file " + name);
    if (create) it = device_.names_.emplace(name, std::make_shared<MemDevice::Inode>()).first;
    return std::unique_ptr<DiskFile>(std::make_unique<MemFile>(device_, life_, it->second));
  }
  Status remove(const std::string& name) override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::other, life_));
    if (std::exchange(device_.tearing_, false)) return Status(Errc::io, "the device has no power");
    if (device_.names_.erase(name) == 1) return {};
    return Status(Errc::not_found, "no file " + name);
  }
  Result<std::vector<std::string>> list() const override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::read, life_));
    std::vector<std::string> names;
    for (const auto& [name, inode] : device_.names_) names.push_back(name);
    return names;
  }
  Status sync_directory() override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::sync, life_));
    if (std::exchange(device_.tearing_, false)) return Status(Errc::io, "the device has no power");
    device_.durable_names_ = device_.names_;
    return {};
  }
  Result<std::string> load(const std::string& name) const override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::read, life_));
    const auto it = device_.names_.find(name);
    if (it == device_.names_.end()) return Status(Errc::not_found, "no file " + name);
    const auto& image = it->second->now;
    if (image.size > 1_MiB) return Status(Errc::invalid, name + " is not a small file");
    std::string contents(image.size, '\0');
    MemDevice::read_image(image, 0, std::as_writable_bytes(std::span(contents)));
    return contents;
  }
  Status save(const std::string& name, const std::string& contents) override {
    MutexLock lock(device_.m_);
    SL_TRY(device_.begin(MemDevice::Action::other, life_));
    if (std::exchange(device_.tearing_, false)) return Status(Errc::io, "the device has no power");
    auto inode = std::make_shared<MemDevice::Inode>();
    MemDevice::write_image(inode->now, 0, bytes_of(contents));
    inode->durable = inode->now;
    device_.names_[name] = inode;
    device_.durable_names_ = device_.names_;
    return {};
  }
  Status lock() override {
    MutexLock lock(device_.m_);
    if (device_.locked_) return Status(Errc::busy, "mem is in use by another process");
    device_.locked_ = holds_lock_ = true;
    return {};
  }
  Result<DiskSpace> space() const override {
    MutexLock lock(device_.m_);
    const std::uint64_t used = device_.used_bytes();
    return DiskSpace{device_.capacity_, device_.capacity_ - std::min(used, device_.capacity_)};
  }
  DiskTraits traits() const override { return device_.traits_; }
  std::string directory() const override { return "mem"; }
  std::string describe() const override { return "mem"; }

 private:
  MemDevice& device_;
  const std::uint64_t life_;
  bool holds_lock_ = false;
};

std::unique_ptr<Disk> MemDevice::disk() {
  MutexLock lock(m_);
  return std::make_unique<MemDisk>(*this, life_);
}

}  // namespace starlane
