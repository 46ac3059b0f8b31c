#include "client/mount/host_fixture.h"

#include <stdexcept>

namespace starlane::client::testing {
namespace {

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

std::pair<std::string, std::string> split(const std::string& path) {
  const auto slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

// ---- FlakyMeta ----

void FlakyMeta::lose(std::uint64_t seed, std::uint64_t one_in) {
  MutexLock lock(m_);
  rng_ = Rng(seed);
  one_in_ = one_in;
}

int FlakyMeta::calls(const std::string& method) {
  MutexLock lock(m_);
  return calls_[method];
}

int FlakyMeta::calls() {
  MutexLock lock(m_);
  int all = 0;
  for (const auto& [method, count] : calls_)
    if (method != "heartbeat") all += count;
  return all;
}

void FlakyMeta::forget_calls() {
  MutexLock lock(m_);
  calls_.clear();
}

void FlakyMeta::before(const std::string& method, std::function<void()> hook) {
  MutexLock lock(m_);
  hooks_[method] = std::move(hook);
}

void FlakyMeta::after(const std::string& method, std::function<void()> hook) {
  MutexLock lock(m_);
  after_[method] = std::move(hook);
}

Status FlakyMeta::run(const std::string& method, const std::function<Status()>& call) {
  bool lost_before = false, lost_after = false;
  std::function<void()> hook, after;
  {
    MutexLock lock(m_);
    ++calls_[method];
    if (auto taken = hooks_.extract(method)) hook = std::move(taken.mapped());
    if (auto taken = after_.extract(method)) after = std::move(taken.mapped());
    if (one_in_ != 0 && rng_.one_in(one_in_)) (rng_.one_in(2) ? lost_before : lost_after) = true;
  }
  if (hook) hook();
  if (away_ || lost_before) return Status(Errc::unavailable, "lost by the test");
  Status status = call();
  if (after) after();
  return lost_after ? Status(Errc::timeout, "answer lost by the test") : status;
}

// ---- Cluster ----

Cluster::Cluster(Milliseconds lease)
    : server(engine, clock, {.cluster = "test", .lease = lease, .heartbeat = Milliseconds(4'000)}) {
  pb::RegisterTargetsRequest request;
  pb::Target* target = request.add_targets();
  target->set_id(1);
  target->set_endpoint("memory");
  target->set_weight(1);
  target->set_state("up");
  pb::ClusterMap map;
  must(server.register_targets({}, request, &map));
}

void Cluster::make_volume(const std::string& name, std::uint64_t quota_bytes) {
  pb::VolumeRequest request;
  request.set_name(name);
  request.set_mode(0777);
  request.set_quota_bytes(quota_bytes);
  pb::Volume volume;
  must(server.volume_create({}, request, &volume));
}

void Cluster::delete_volume(const std::string& name) {
  pb::VolumeRequest request;
  request.set_name(name);
  request.set_force(true);
  pb::Empty reply;
  must(server.volume_delete({}, request, &reply));
}

void Cluster::end_session(SessionId session) {
  pb::SessionRequest request;
  request.set_session(session.value);
  pb::Empty reply;
  must(server.close_session({}, request, &reply));
}

// ---- Notices, Filler ----

void Notices::invalidate_inode(Node node, std::int64_t, std::int64_t) {
  MutexLock lock(m_);
  ++inodes_[node.pack()];
}

void Notices::invalidate_entry(Node, std::string_view name) {
  MutexLock lock(m_);
  entries_.emplace_back(name);
}

int Notices::of(Node node) {
  MutexLock lock(m_);
  return inodes_[node.pack()];
}

std::vector<std::string> Notices::entries() {
  MutexLock lock(m_);
  return entries_;
}

bool Filler::add(std::string_view name, std::uint64_t ino, std::uint32_t type,
                 std::uint64_t next_cookie, const EntryReply* entry) {
  if (entries.size() >= room_) return false;
  const std::uint64_t node = entry != nullptr && entry->node.inode ? entry->node.pack() : 0;
  entries.push_back({std::string(name), ino, type, next_cookie, node});
  return true;
}

// ---- Host ----

Host::Host(Cluster& cluster, const std::string& name, const MountOptions& options)
    : meta(cluster.server) {
  SessionOptions session;
  session.host = name;
  session.purpose = "test";
  session.longest_heartbeat = Milliseconds(10);
  session.retry.longest_wait = Milliseconds(5);
  auto sessions = Sessions::open(meta, cluster.clock, session, std::chrono::seconds(5));
  must(sessions.status());
  sessions_ = std::move(sessions).value();
  FileIoOptions io;
  io.cache_bytes = 16_MiB;
  io.arena_bytes = 32_MiB;
  auto made = make_file_io(
      meta, [&cluster](const std::string&) { return cluster.blocks; }, *sessions_,
      sessions_->requests(), io);
  must(made.status());
  io_ = std::move(made).value();
  vfs_ = make_mount(*sessions_, *io_, incarnations, options);
  vfs_->start(&notices, {});
}

Host::~Host() { (void)stop(); }

Status Host::stop() {
  if (stopped_) return {};
  stopped_ = true;
  Status status = vfs_->stop();
  vfs_.reset();
  io_.reset();
  sessions_.reset();
  return status;
}

Caller Host::caller() {
  return {.uid = 0, .gid = 0, .pid = 77, .umask = 022, .unique = unique_ += 2};
}

Result<EntryReply> Host::look(const std::string& path) {
  EntryReply entry;
  entry.node = kMountRoot;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t start = at + 1;
    at = std::min(path.find('/', start), path.size());
    entry = SL_TRY(vfs_->lookup(caller(), entry.node, path.substr(start, at - start)));
    if (!entry.node.inode) return {Errc::not_found, path};
  }
  return entry;
}

Result<Node> Host::walk(const std::string& path) { return SL_TRY(look(path)).node; }

Result<Stat> Host::stat(const std::string& path) {
  const Node node = SL_TRY(walk(path));
  return SL_TRY(vfs_->get_attributes(caller(), node, std::nullopt)).stat;
}

Result<std::uint64_t> Host::open(const std::string& path, std::uint32_t flags) {
  const Node node = SL_TRY(walk(path));
  Result<OpenReply> reply = vfs_->open(caller(), node, flags);
  if (reply.code() == Errc::stale_handle) {  // as the kernel does, once
    const Node again = SL_TRY(walk(path));
    reply = vfs_->open(caller(), again, flags);
  }
  SL_TRY(reply.status());
  last_open = *reply;
  return reply->handle;
}

Result<std::uint64_t> Host::create(const std::string& path, std::uint32_t flags,
                                   std::uint32_t mode) {
  const auto [parent, name] = split(path);
  const Node directory = SL_TRY(walk(parent));
  const Vfs::Created created = SL_TRY(vfs_->create(caller(), directory, name, mode, flags));
  last_open = created.open;
  return created.open.handle;
}

Status Host::close(std::uint64_t handle) {
  Status status = vfs_->flush(caller(), handle, /*owner=*/0);
  vfs_->release(caller(), handle);
  return status;
}

Status Host::mkdir(const std::string& path) {
  const auto [parent, name] = split(path);
  const Node directory = SL_TRY(walk(parent));
  return vfs_->make_directory(caller(), directory, name, 0755).status();
}

Status Host::unlink(const std::string& path) {
  const auto [parent, name] = split(path);
  const Node directory = SL_TRY(walk(parent));
  return vfs_->unlink(caller(), directory, name);
}

Status Host::rmdir(const std::string& path) {
  const auto [parent, name] = split(path);
  const Node directory = SL_TRY(walk(parent));
  return vfs_->remove_directory(caller(), directory, name);
}

Status Host::rename(const std::string& from, const std::string& to, std::uint32_t flags) {
  const auto [parent, name] = split(from);
  const auto [new_parent, new_name] = split(to);
  const Node old_node = SL_TRY(walk(parent));
  const Node new_node = SL_TRY(walk(new_parent));
  return vfs_->rename(caller(), old_node, name, new_node, new_name, flags);
}

Status Host::link(const std::string& from, const std::string& to) {
  const auto [parent, name] = split(to);
  const Node node = SL_TRY(walk(from));
  const Node directory = SL_TRY(walk(parent));
  SL_TRY(vfs_->link(caller(), node, directory, name));
  return {};
}

Status Host::truncate(const std::string& path, std::uint64_t length) {
  SetStat change;
  change.length = length;
  const Node node = SL_TRY(walk(path));
  SL_TRY(vfs_->set_attributes(caller(), node, change));
  return {};
}

Result<std::uint32_t> Host::pwrite(std::uint64_t handle, std::uint64_t offset,
                                   std::string_view bytes, const WriteOptions& options) {
  return vfs_->write(caller(), handle, offset, bytes_of(bytes), options);
}

Result<std::string> Host::pread(std::uint64_t handle, std::uint64_t offset, std::uint32_t length) {
  const std::vector<Piece> pieces = SL_TRY(vfs_->read(caller(), handle, offset, length));
  std::string all;
  for (const Piece& piece : pieces) all += text_of(piece.bytes);
  return all;
}

Status Host::write_file(const std::string& path, std::string_view bytes) {
  Result<std::uint64_t> handle = open(path, O_WRONLY | O_TRUNC);
  if (handle.code() == Errc::not_found) handle = create(path);
  SL_TRY(handle.status());
  const Result<std::uint32_t> written = pwrite(*handle, 0, bytes);
  const Status closed = close(*handle);
  return written.ok() ? closed : written.status();
}

Result<std::string> Host::read_file(const std::string& path) {
  const std::uint64_t handle = SL_TRY(open(path, O_RDONLY));
  Result<std::string> bytes = pread(handle, 0, 1 << 20);
  const Status closed = close(handle);
  return closed.ok() ? bytes : closed;
}

Result<std::vector<ListedEntry>> Host::list(const std::string& path, std::size_t room, bool plus) {
  const Node node = SL_TRY(walk(path));
  const std::uint64_t handle = SL_TRY(vfs_->open_directory(caller(), node));
  std::vector<ListedEntry> all;
  std::uint64_t cookie = 0;
  Status status;
  while (true) {
    Filler filler(room);
    status = vfs_->read_directory(caller(), handle, cookie, plus, filler);
    if (!status.ok() || filler.entries.empty()) break;
    cookie = filler.entries.back().next;
    all.insert(all.end(), filler.entries.begin(), filler.entries.end());
  }
  vfs_->release_directory(handle);
  SL_TRY(status);
  return all;
}

}  // namespace starlane::client::testing
