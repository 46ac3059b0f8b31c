#include "wire/embedded.h"

#include "client/make_file_io.h"
#include "client/mount.h"
#include "wire/roles.h"

namespace starlane::wire {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(30);

/// There is no kernel whose opens could be moved: every file is served from here.
class OneIncarnation final : public client::Incarnations {
 public:
  void start(client::KernelNotifier*, const client::KernelFeatures&) override {}
  void stop() override {}
  std::uint8_t preferred(FileKey) override { return 0; }
  Result<client::OpenDecision> open(const Open&) override { return client::OpenDecision{}; }
  void release(FileKey, client::Node, bool) override {}
  void forget(FileKey, client::Node) override {}
  void local_write(FileKey, std::uint64_t, ByteSpan) override {}
  void local_truncate(FileKey, std::uint64_t) override {}
  void local_zero(FileKey, std::uint64_t, std::uint64_t) override {}
  void local_commit(FileKey, std::uint64_t, const client::FileState&) override {}
  void remote_change(FileKey) override {}
  Status warm(FileKey, const client::FileState&) override { return {}; }
  Figures figures() override { return {}; }
};

class NoKernel final : public client::KernelNotifier {
 public:
  void invalidate_inode(client::Node, std::int64_t, std::int64_t) override {}
  void invalidate_entry(client::Node, std::string_view) override {}
  Status store(client::Node, std::uint64_t, ByteSpan) override { return {}; }
};

class EmbeddedClient final : public Embedded {
 public:
  static Result<std::unique_ptr<Embedded>> open(const Address& address,
                                                const EmbeddedOptions& options) {
    std::unique_ptr<EmbeddedClient> out(new EmbeddedClient);
    out->connection_ = SL_TRY(Connection::open(address));
    client::SessionOptions session;
    session.host = host_name();
    session.purpose = options.purpose;
    out->sessions_ = SL_TRY(
        client::Sessions::open(out->connection_->meta(), system_clock(), session, kPatience));
    out->meta_ = std::make_unique<client::PatientMeta>(out->sessions_->retry());
    client::FileIoOptions io;
    io.cache_bytes = options.block_cache_bytes;
    io.arena_bytes = options.dirty_bytes;
    Network& network = out->connection_->network();
    out->io_ = SL_TRY(client::make_file_io(
        out->connection_->meta(),
        [&network](const std::string& endpoint) { return network.blocks(endpoint); },
        *out->sessions_, out->sessions_->requests(), io));
    out->vfs_ = client::make_mount(*out->sessions_, *out->io_, out->incarnations_, {});
    out->vfs_->start(&out->kernel_, {});
    return std::unique_ptr<Embedded>(std::move(out));
  }

  ~EmbeddedClient() override { [[maybe_unused]] const Status told = stop(); }

  MetaService& meta() override { return *meta_; }
  client::Vfs& vfs() override { return *vfs_; }
  Status stop() override {
    if (stopped_ || !vfs_) return {};
    stopped_ = true;
    return vfs_->stop();
  }

 private:
  EmbeddedClient() = default;

  NoKernel kernel_;
  OneIncarnation incarnations_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<client::Sessions> sessions_;
  std::unique_ptr<client::PatientMeta> meta_;
  std::unique_ptr<client::FileIo> io_;
  std::unique_ptr<client::Vfs> vfs_;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Embedded>> Embedded::open(const Address& address,
                                                 const EmbeddedOptions& options) {
  return EmbeddedClient::open(address, options);
}

}  // namespace starlane::wire
