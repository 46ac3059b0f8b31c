// The bytes of files through FileIo, over a block store and a metadata server in this process,
// against plain pread and pwrite of the same directory and against BlockService::get alone: GB/s
// with one and four streams, cold and warm. Usage: file_io [MiB a file] [directory]; medians of
// five runs.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "block/store.h"
#include "client/make_file_io.h"
#include "common/rng.h"
#include "kv/mem/mem_engine.h"
#include "meta/server.h"

namespace starlane {
namespace {

constexpr int kRuns = 5;
constexpr std::size_t kFiles = 4;
constexpr std::size_t kStep = 1_MiB;  // of a read or write, as the kernel sends them

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "file_io: %s\n", status.to_string().c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

double cpu_seconds() {
  struct rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

struct Row {
  double rate = 0, cpu = 0;  // GB/s, CPU seconds a GB
};

Row measure(std::uint64_t bytes, const std::function<void()>& prepare,
            const std::function<void()>& work) {
  std::vector<double> rates, cpus;
  for (int run = 0; run < kRuns; ++run) {
    prepare();
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    work();
    const double taken =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    rates.push_back(static_cast<double>(bytes) * 1e-9 / taken);
    cpus.push_back((cpu_seconds() - cpu) / (static_cast<double>(bytes) * 1e-9));
  }
  std::ranges::sort(rates);
  std::ranges::sort(cpus);
  return {rates[kRuns / 2], cpus[kRuns / 2]};
}

void in_threads(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> running;
  for (std::size_t t = 1; t < threads; ++t) running.emplace_back(work, t);
  work(0);
  for (auto& thread : running) thread.join();
}

class OneAttachment final : public client::Attachments {
 public:
  explicit OneAttachment(client::Attachment now) : now_(now) {}
  Result<client::Attachment> attachment(BranchId, std::uint64_t) override { return now_; }
  void fenced(BranchId, const client::Attachment&) override {}

 private:
  const client::Attachment now_;
};

class Bench {
 public:
  Bench(const std::string& parent, std::uint64_t file_bytes)
      : bytes_(file_bytes), server_(engine_, system_clock(), {}) {
    std::string pattern = parent + "/starlane-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) must(Status(Errc::io, "cannot write in " + parent));
    directory_ = pattern;
    data_.resize(64_MiB);
    Rng rng(1);
    for (std::size_t i = 0; i < data_.size(); i += 8) store_little(data_.data() + i, rng.next());
    open_store();
    attach();
  }
  ~Bench() {
    io_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  void run() {
    std::printf("%s, %llu MiB a file, %zu KiB a call, medians of %d\n", directory_.c_str(),
                static_cast<unsigned long long>(bytes_ >> 20),
                static_cast<std::size_t>(kStep >> 10), kRuns);
    std::printf("%-44s %8s %10s\n", "", "GB/s", "CPU s/GB");
    plain();
    writes();
    gets();
    reads();
  }

 private:
  void show(const char* what, const Row& row) {
    std::printf("%-44s %8.2f %10.2f\n", what, row.rate, row.cpu);
  }

  void open_store() {
    block::StoreOptions options;
    options.cluster = "bench";
    options.targets.resize(1);
    options.targets[0].id = TargetId(1);
    options.targets[0].directory = directory_ + "/target";
    store_ = must(block::Store::open(std::move(options)));
    pb::RegisterTargetsRequest request;
    pb::Target& target = *request.add_targets();
    target.set_id(1);
    target.set_endpoint("here");
    target.set_weight(1);
    target.set_state("up");
    target.set_domain("here");
    pb::ClusterMap map;
    must(server_.register_targets(Call(), request, &map));
  }

  void attach() {
    pb::OpenSessionRequest open;
    open.set_nonce("bench");
    pb::OpenSessionReply session;
    must(server_.open_session(Call(), open, &session));
    pb::VolumeRequest volume;
    volume.set_name("bench");
    volume.set_mode(0755);
    pb::Volume made;
    must(server_.volume_create(Call(), volume, &made));
    pb::AttachRequest request;
    request.set_session(session.session());
    request.set_volume("bench");
    pb::AttachReply reply;
    must(server_.attach(Call(), request, &reply));
    branch_ = BranchId(reply.branch());
    attachment_ = {SessionId(session.session()), reply.attachment_epoch(), false};
    attachments_ = std::make_unique<OneAttachment>(attachment_);
  }

  FileKey create(const std::string& name) {
    pb::CreateRequest request;
    request.mutable_on()->set_session(attachment_.session.value);
    request.mutable_on()->set_branch(branch_.value);
    request.mutable_on()->set_attachment_epoch(attachment_.epoch);
    request.mutable_on()->set_request(++request_);
    request.set_parent(kRootInode.value);
    request.set_name(name);
    request.set_mode(0100644);
    pb::NewEntry entry;
    must(server_.create(Call(), request, &entry));
    return {branch_, InodeId(entry.attributes().inode())};
  }

  void new_client(std::uint64_t cache_bytes) {
    io_.reset();
    client::FileIoOptions options;
    options.cache_bytes = cache_bytes;
    std::shared_ptr<BlockService> service(store_.get(), [](BlockService*) {});
    io_ = must(client::make_file_io(
        server_, [service](const std::string&) { return service; }, *attachments_, requests_,
        options));
  }

  ByteSpan at(std::uint64_t offset) const {
    return ByteSpan(data_).subspan(offset % data_.size(), kStep);
  }

  void plain() {
    const std::string path = directory_ + "/plain";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const auto write = [&] {
      for (std::uint64_t o = 0; o < bytes_; o += kStep) {
        if (::pwrite(fd, at(o).data(), kStep, static_cast<off_t>(o)) != ssize_t{kStep})
          must(Status(Errc::io, "pwrite"));
      }
    };
    show("pwrite, 1 stream, fresh file",
         measure(
             bytes_,
             [&] { must(::ftruncate(fd, 0) == 0 ? Status() : Status(Errc::io, "ftruncate")); },
             write));
    for (const std::size_t streams : {1, 4}) {
      const Row row = measure(
          bytes_ * streams, [] {},
          [&] {
            in_threads(streams, [&](std::size_t) {
              std::vector<std::byte> out(kStep);
              for (std::uint64_t o = 0; o < bytes_; o += kStep) {
                if (::pread(fd, out.data(), kStep, static_cast<off_t>(o)) != ssize_t{kStep})
                  must(Status(Errc::io, "pread"));
              }
            });
          });
      show(streams == 1 ? "pread, 1 stream" : "pread, 4 streams", row);
    }
    ::close(fd);
    std::filesystem::remove(path);
  }

  void write_file(FileKey file, Safety safety) {
    for (std::uint64_t o = 0; o < bytes_; o += kStep)
      must(io_->write({file, {1, 0}, o, at(o), false}));
    must(io_->flush(file, safety));
  }

  void writes() {
    new_client(64_MiB);
    for (const std::size_t streams : {std::size_t{1}, kFiles}) {
      int run = 0;
      const Row row = measure(
          bytes_ * streams,
          [&] {
            files_.clear();
            for (std::size_t i = 0; i < streams; ++i)
              files_.push_back(create(std::to_string(streams) + "." + std::to_string(run) + "." +
                                      std::to_string(i)));
            ++run;
          },
          [&] {
            in_threads(streams, [&](std::size_t t) { write_file(files_[t], Safety::durable); });
          });
      show(streams == 1 ? "FileIo write + fsync, 1 stream" : "FileIo write + fsync, 4 streams",
           row);
    }
  }

  /// Every block of the last files, from two threads, as the servers alone would give them.
  void gets() {
    struct Block {
      BlockId id;
      std::uint32_t length;
    };
    std::vector<Block> blocks;
    for (std::string cursor;;) {
      const auto listing = must(store_->list(Call(), TargetId(1), cursor, 1000));
      for (const BlockInfo& info : listing.blocks) blocks.push_back({info.block, info.length});
      cursor = listing.cursor;
      if (cursor.empty()) break;
    }
    if (blocks.size() > 4 * bytes_ / kBlockSize)
      blocks.erase(blocks.begin(),
                   blocks.end() - static_cast<std::ptrdiff_t>(4 * bytes_ / kBlockSize));
    std::uint64_t bytes = 0;
    for (const Block& block : blocks) bytes += block.length;
    const Row row = measure(
        bytes, [] {},
        [&] {
          std::atomic<std::size_t> next{0};
          in_threads(2, [&](std::size_t) {
            std::vector<std::byte> out(kBlockSize);
            for (std::size_t i = next++; i < blocks.size(); i = next++) {
              LandingSink sink(MutableByteSpan(out).first(blocks[i].length));
              must(store_->get(Call(), {TargetId(1), blocks[i].id, 0, blocks[i].length}, sink)
                       .status());
            }
          });
        });
    show("BlockService::get alone, 2 threads", row);
  }

  void read_files(std::size_t streams, bool copy) {
    in_threads(streams, [&](std::size_t t) {
      const auto ahead = io_->new_streams();
      std::vector<std::byte> out(kStep);
      const client::FileState known{0, bytes_};
      for (std::uint64_t o = 0; o < bytes_; o += kStep) {
        const auto pieces = must(io_->read(files_[t], known, o, kStep, ahead.get(), 0));
        std::size_t n = 0;
        for (const client::Piece& piece : pieces) {
          if (copy) std::memcpy(out.data() + n, piece.bytes.data(), piece.bytes.size());
          n += piece.bytes.size();
        }
        if (n != kStep) must(Status(Errc::io, "short read"));
        if (copy && o % (16 * kStep) == 0 && std::memcmp(out.data(), at(o).data(), kStep) != 0)
          must(Status(Errc::corrupt, "other bytes"));
      }
    });
  }

  void reads() {
    for (const std::size_t streams : {std::size_t{1}, kFiles}) {
      const char* const name = streams == 1 ? "1 stream" : "4 streams";
      // A small cache: what is read goes through it. Made before, so that its memory is warm as in
      // a daemon that lives.
      new_client(std::max(bytes_ / 4, 32_MiB));
      read_files(streams, true);
      for (const bool copy : {true, false}) {
        const Row cold = measure(
            bytes_ * streams,
            [&] {
              for (const FileKey file : files_) io_->invalidate(file);
            },
            [&] { read_files(streams, copy); });
        std::printf("FileIo cold read, %s%s", name, copy ? ", copied out" : "             ");
        show("", cold);
      }
      new_client(bytes_ * streams + 64_MiB);
      read_files(streams, true);
      const Row warm = measure(
          bytes_ * streams, [] {}, [&] { read_files(streams, true); });
      std::printf("FileIo warm read, %s, copied out", name);
      show("", warm);
    }
  }

  const std::uint64_t bytes_;
  std::string directory_;
  std::vector<std::byte> data_;
  kv::mem::MemEngine engine_;
  meta::Server server_;
  std::unique_ptr<block::Store> store_;
  BranchId branch_;
  client::Attachment attachment_;
  std::unique_ptr<OneAttachment> attachments_;
  client::Requests requests_;
  std::unique_ptr<client::FileIo> io_;
  std::vector<FileKey> files_;
  std::uint64_t request_ = 0;
};

}  // namespace
}  // namespace starlane

int main(int argc, char** argv) {
  const std::uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512;
  starlane::Bench(argc > 2 ? argv[2] : "/dev/shm", std::max<std::uint64_t>(mib, 64) << 20).run();
  return 0;
}
