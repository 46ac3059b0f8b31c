// The data channel against what the machine allows: gets through BlockStub, Channel and Server
// beside a bare loop over the same kind of socket that moves the same bytes with one small request
// each. Both ends are processes of their own, asleep while they wait. Prints a table: medians of
// alternating rounds, and the ratio that counts.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "codec/crc32c.h"
#include "codec/mac.h"
#include "common/unique_fd.h"
#include "net/shm/shm_fabric.h"
#include "net/tcp/socket_connection.h"
#include "net/tcp/tcp_transport.h"
#ifdef SL_HAVE_UCX
#include "net/ucx/ucx_fabric.h"
#endif
#include "rpc/block_stub.h"
#include "rpc/server.h"

namespace starlane {
namespace {

using Clock = std::chrono::steady_clock;

void check(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  std::_Exit(1);
}

/// A store that has every block in memory and does nothing else.
class Ceiling final : public BlockService {
 public:
  Status put(const Call&, const PutBlock&, BulkSource& data) override {
    thread_local std::vector<std::byte> room(kBlockSize);
    return data.read(MutableByteSpan(room).first(data.size()));
  }
  Result<GetBlockReply> get(const Call&, const GetBlock& request, BulkSink& out) override {
    SL_TRY(out.write(ByteSpan(block_).first(request.length)));
    return GetBlockReply{std::vector<std::uint32_t>(divide_up(request.length, kChecksumUnit), 7)};
  }
  Status sync(const Call&, TargetId) override { return {}; }
  Status remove_slice(const Call&, TargetId, BranchId, SliceId) override { return {}; }
  Result<BlockListing> list(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return BlockListing{};
  }
  Result<BlockListing> verify(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return BlockListing{};
  }
  Result<std::vector<TargetInfo>> targets(const Call&) override {
    return std::vector<TargetInfo>{};
  }

 private:
  std::vector<std::byte> block_ = std::vector<std::byte>(kBlockSize, std::byte{0x5a});
};

/// One way of fetching `length` bytes into `into`.
using Fetch = std::function<void(MutableByteSpan into)>;

double gigabytes_per_second(const Fetch& fetch, MutableByteSpan into, int times) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) fetch(into);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return static_cast<double>(into.size()) * times / seconds / 1e9;
}

double median_microseconds(const Fetch& fetch, MutableByteSpan into, int times) {
  std::vector<double> each;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    fetch(into);
    each.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(each.begin(), each.begin() + times / 2, each.end());
  return each[static_cast<std::size_t>(times) / 2];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// "shm" or "ucx"; null for ways without exposed memory, and where UCX cannot be had.
std::unique_ptr<net::MemoryFabric> make_fabric(const std::string& way) {
  if (way == "shm") return net::make_shm_fabric();
  if (way != "ucx") return nullptr;
#ifdef SL_HAVE_UCX
  auto fabric = net::make_ucx_fabric();
  if (fabric.ok()) return std::move(fabric).value();
#endif
  return nullptr;
}

/// The bare loop's server: four bytes of length in, so many bytes out, blocking calls only.
void serve_bare(int fd) {
  const std::vector<std::byte> block(kBlockSize, std::byte{0x5a});
  std::uint32_t length = 0;
  while (::recv(fd, &length, sizeof length, MSG_WAITALL) == sizeof length) {
    for (std::size_t sent = 0; sent < length;) {
      const ssize_t n = ::send(fd, block.data() + sent, length - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
}

Fetch bare_fetch(int fd) {
  return [fd](MutableByteSpan into) {
    const auto length = static_cast<std::uint32_t>(into.size());
    if (::send(fd, &length, sizeof length, MSG_NOSIGNAL) != sizeof length) std::_Exit(1);
    if (::recv(fd, into.data(), into.size(), MSG_WAITALL) != static_cast<ssize_t>(into.size()))
      std::_Exit(1);
  };
}

net::Endpoint at(const std::string& kind, const std::string& directory, const char* name) {
  if (kind == "tcp") return {net::Endpoint::Kind::tcp, "127.0.0.1", 0};
  return {net::Endpoint::Kind::unix_socket, directory + "/" + name, 0};
}

/// Runs `serve` in a child once its listener is up; returns where it listens and the child.
struct Child {
  pid_t pid = 0;
  net::Endpoint where;
};
Child fork_bare(const net::Endpoint& endpoint) {
  net::TcpTransport tcp;
  auto listener = tcp.listen(endpoint);
  check(listener.status(), "listen");
  const pid_t pid = ::fork();
  if (pid != 0) {
    const net::Endpoint where = (*listener)->local();
    (void)listener->release();  // the child's now: its socket file must stay
    return {pid, where};
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  check(net::poll_until((*listener)->descriptor(), 1, Deadline::never()), "poll");
  auto connection = (*listener)->accept();
  const int fd = (*connection)->descriptor();
  int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  serve_bare(fd);
  std::_Exit(0);
}

/// Serves in a child until this process ends.
Child fork_server(const net::Endpoint& endpoint, const net::Key& key, const std::string& way) {
  int told[2];
  if (::pipe(told) != 0) std::_Exit(1);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Ceiling store;
    net::TcpTransport tcp;
    net::Transport* transports[] = {&tcp};
    rpc::ServerOptions options;
    options.workers = 4;
    const auto fabric = make_fabric(way);
    options.fabric = fabric.get();
    rpc::Server server(options, {nullptr, &store}, key, transports);
    check(server.start(), "start");
    const auto where = server.listen(endpoint);
    check(where.status(), "listen");
    const std::uint16_t port = where->port;
    if (::write(told[1], &port, sizeof port) != sizeof port) std::_Exit(1);
    while (::getppid() == parent) ::usleep(100'000);
    std::_Exit(0);
  }
  net::Endpoint where = endpoint;
  if (::read(told[0], &where.port, sizeof where.port) != sizeof where.port) std::_Exit(1);
  return {pid, where};
}

void end(const Child& child) {
  ::kill(child.pid, SIGKILL);
  ::waitpid(child.pid, nullptr, 0);
}

/// One-sided puts into memory that the other end exposed, as ucx_perftest makes them: the limit for
/// exposed memory.
Fetch put_fetch(net::MemoryFabric& fabric, const net::ExposedMemory& exposed) {
  UniqueFd descriptor(::dup(exposed.descriptor()));
  std::shared_ptr<net::ReachedMemory> reached =
      std::move(fabric.reach(bytes_of(exposed.offer()), std::move(descriptor))).value();
  return [reached](MutableByteSpan from) { check(reached->push(0, from), "put"); };
}

/// Uses the bytes where they have landed.
class Seen final : public BulkSink {
 public:
  Status write(ByteSpan bytes) override {
    sum_ += std::to_integer<unsigned>(bytes.front()) + std::to_integer<unsigned>(bytes.back());
    return {};
  }

 private:
  std::uint64_t sum_ = 0;
};

/// Gets whose bytes go through exposed memory, against bare puts into it.
void compare_exposed(const std::string& way, const std::string& directory, const net::Key& key) {
  const Child served = fork_server(at("unix", directory, way.c_str()), key, way);
  const auto fabric = make_fabric(way);
  if (fabric == nullptr) return end(served);
  const auto exposed = std::move(fabric->expose(kBlockSize)).value();
  const auto own_end = make_fabric(way);
  const Fetch bare = put_fetch(*own_end, *exposed);
  net::TcpTransport tcp;
  net::Transport* transports[] = {&tcp};
  rpc::ChannelOptions options;
  options.purpose = net::Purpose::data;
  options.fabric = fabric.get();
  rpc::Channel channel(served.where, key, transports, options);
  rpc::BlockStub stub(channel);
  const Fetch ours = [&](MutableByteSpan into) {
    LandingSink sink(into);
    check(
        stub.get({}, {TargetId(1), {}, 0, static_cast<std::uint32_t>(into.size())}, sink).status(),
        "get");
  };
  const Fetch in_place = [&](MutableByteSpan into) {
    Seen sink;
    check(
        stub.get({}, {TargetId(1), {}, 0, static_cast<std::uint32_t>(into.size())}, sink).status(),
        "get");
  };
  std::vector<std::byte> large(kBlockSize);
  for (const auto& [name, fetch] :
       {std::pair("4 MiB gets, copied out", &ours), std::pair("4 MiB gets, in place", &in_place)}) {
    std::vector<double> bare_rate, our_rate, ratio;
    bare(large), (*fetch)(large);
    for (int round = 0; round < 7; ++round) {
      bare_rate.push_back(gigabytes_per_second(bare, large, 60));
      our_rate.push_back(gigabytes_per_second(*fetch, large, 60));
      ratio.push_back(our_rate.back() / bare_rate.back());
    }
    std::printf("%-6s %-22s %9.2f %9.2f GB/s  ratio %.2f (bare: one-sided puts)\n", way.c_str(),
                name, median(bare_rate), median(our_rate), median(ratio));
  }
  if (channel.counts().attached == 0)
    std::printf("%-6s the server could not reach the memory\n", way.c_str());
  end(served);
}

void compare(const std::string& kind, const std::string& directory, const net::Key& key) {
  const Child bare = fork_bare(at(kind, directory, "bare"));
  const Child served = fork_server(at(kind, directory, "served"), key, kind);
  net::TcpTransport tcp;
  net::Transport* transports[] = {&tcp};
  auto connection = tcp.connect(bare.where, Deadline::never());
  check(connection.status(), "connect");
  const int fd = (*connection)->descriptor();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const Fetch plain = bare_fetch(fd);

  rpc::ChannelOptions options;
  options.purpose = net::Purpose::data;
  rpc::Channel channel(served.where, key, transports, options);
  rpc::BlockStub stub(channel);
  const Fetch ours = [&](MutableByteSpan into) {
    LandingSink sink(into);
    check(
        stub.get({}, {TargetId(1), {}, 0, static_cast<std::uint32_t>(into.size())}, sink).status(),
        "get");
  };
  std::vector<std::byte> large(kBlockSize), small(4096);
  std::vector<double> plain_rate, our_rate, ratio, plain_us, our_us;
  plain(large), ours(large);
  for (int round = 0; round < 7; ++round) {
    plain_rate.push_back(gigabytes_per_second(plain, large, 60));
    our_rate.push_back(gigabytes_per_second(ours, large, 60));
    ratio.push_back(our_rate.back() / plain_rate.back());
    plain_us.push_back(median_microseconds(plain, small, 700));
    our_us.push_back(median_microseconds(ours, small, 700));
  }
  std::printf("%-6s %-22s %9.2f %9.2f GB/s  ratio %.2f\n", kind.c_str(), "4 MiB gets",
              median(plain_rate), median(our_rate), median(ratio));
  std::printf("%-6s %-22s %9.1f %9.1f us    ratio %.2f\n", kind.c_str(), "4 KiB get, median",
              median(plain_us), median(our_us), median(our_us) / median(plain_us));
  end(bare);
  end(served);
}

int main_program() {
  char directory[] = "/tmp/starlane-bench-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return 1;
  net::Key key;
  check(fill_random(key.bytes), "key");
  std::printf("%-6s %-22s %9s %9s\n", "way", "what", "bare", "starlane");
  for (const char* kind : {"unix", "tcp"}) compare(kind, directory, key);
  for (const char* way : {"shm", "ucx"}) compare_exposed(way, directory, key);
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace starlane

int main() { return starlane::main_program(); }
