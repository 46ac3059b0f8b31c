#include "kv/mem/mem_engine.h"

#include <utility>

namespace starlane::kv::mem {

/// Passes everything on, but for the faults. Keeps the resolver of its own time.
class FaultyTransaction final : public Transaction {
 public:
  FaultyTransaction(MemEngine& engine, std::shared_ptr<occ::Resolver> resolver)
      : engine_(engine), resolver_(std::move(resolver)), inner_(resolver_->begin()) {}

  Result<std::optional<Row>> get(std::string_view key) override {
    SL_TRY(before_read());
    return inner_->get(key);
  }
  Result<std::vector<std::optional<Row>>> get_many(const std::vector<std::string>& keys) override {
    SL_TRY(before_read());
    return inner_->get_many(keys);
  }
  Result<std::vector<Row>> scan(const ScanOptions& options) override {
    SL_TRY(before_read());
    return inner_->scan(options);
  }
  Result<std::int64_t> total(std::string_view key) override {
    SL_TRY(before_read());
    return inner_->total(key);
  }
  Result<std::vector<std::int64_t>> totals(const std::vector<std::string>& keys) override {
    SL_TRY(before_read());
    return inner_->totals(keys);
  }
  void expect(std::string_view key, Version version) override { inner_->expect(key, version); }
  void guard(std::string_view key) override { inner_->guard(key); }
  void expect_empty(std::string_view first, std::string_view last) override {
    inner_->expect_empty(first, last);
  }
  void put(std::string_view key, std::string_view value) override { inner_->put(key, value); }
  void del(std::string_view key) override { inner_->del(key); }
  void touch(std::string_view key) override { inner_->touch(key); }
  void add(std::string_view key, std::int64_t amount) override { inner_->add(key, amount); }
  void add_limited(std::string_view key, std::int64_t amount, std::int64_t limit) override {
    inner_->add_limited(key, amount, limit);
  }
  void max(std::string_view key, std::int64_t value) override { inner_->max(key, value); }
  void clear(std::string_view key) override { inner_->clear(key); }

  Status commit(Durability durability) override {
    switch (engine_.draw_commit()) {
      case Fault::conflict:
        return Status(Errc::conflict, "injected conflict");
      case Fault::io:
        if (engine_.toss()) {
          if (Status status = inner_->commit(durability); !status.ok()) return status;
        }
        return Status(Errc::io, "injected failure");
      case Fault::lost_answer: {
        const Status status = inner_->commit(durability);
        return status.ok() ? Status(Errc::unavailable, "injected loss of an answer") : status;
      }
      default:
        return inner_->commit(durability);
    }
  }

 private:
  Status before_read() {
    return engine_.draw_read() ? Status(Errc::io, "injected read failure") : Status();
  }

  MemEngine& engine_;
  const std::shared_ptr<occ::Resolver> resolver_;
  const std::unique_ptr<Transaction> inner_;
};

MemEngine::MemEngine(occ::Options options) : options_(std::move(options)), resolver_(start()) {}
MemEngine::~MemEngine() = default;

std::shared_ptr<occ::Resolver> MemEngine::start() {
  auto opened = occ::Resolver::open(disk_->open(), options_);
  SL_CHECK(opened.ok());  // Nothing but this program ever wrote the disk.
  return std::move(*opened);
}

std::shared_ptr<occ::Resolver> MemEngine::resolver() {
  MutexLock lock(m_);
  return resolver_;
}

std::unique_ptr<Transaction> MemEngine::begin() {
  return std::make_unique<FaultyTransaction>(*this, resolver());
}
Status MemEngine::flush() { return resolver()->flush(); }
Engine::Description MemEngine::describe() { return resolver()->describe(); }

void MemEngine::set_before_flush(std::function<Status()> hook) {
  MutexLock lock(m_);
  hook_ = std::move(hook);
  resolver_->set_before_flush(hook_);
}

void MemEngine::crash(bool drop_unsynced) {
  resolver()->stop(Status(Errc::unavailable, "the engine died"));
  disk_->fail_writes(0, {});
  disk_->fail_syncs(0, {});
  if (drop_unsynced) {
    MutexLock lock(m_);
    disk_->lose_unsynced(rng_.below(disk_->unsynced() + 1));
  }
  auto fresh = start();
  MutexLock lock(m_);
  if (hook_) fresh->set_before_flush(hook_);
  resolver_ = std::move(fresh);
}

void MemEngine::set_faults(const Faults& faults) {
  MutexLock lock(m_);
  faults_ = faults;
  rng_ = Rng(faults.seed);
}

void MemEngine::fail_next(Fault fault) {
  MutexLock lock(m_);
  next_.push_back(fault);
}

Fault MemEngine::draw_commit() {
  MutexLock lock(m_);
  if (!next_.empty() && next_.front() != Fault::read_io) {
    const Fault fault = next_.front();
    next_.pop_front();
    return fault;
  }
  const auto hit = [&](unsigned one_in)
                       SL_NO_THREAD_SAFETY { return one_in != 0 && rng_.one_in(one_in); };
  if (hit(faults_.conflict_one_in)) return Fault::conflict;
  if (hit(faults_.io_one_in)) return Fault::io;
  if (hit(faults_.lost_answer_one_in)) return Fault::lost_answer;
  return Fault::none;
}

bool MemEngine::draw_read() {
  MutexLock lock(m_);
  if (!next_.empty() && next_.front() == Fault::read_io) {
    next_.pop_front();
    return true;
  }
  return faults_.read_io_one_in != 0 && rng_.one_in(faults_.read_io_one_in);
}

bool MemEngine::toss() {
  MutexLock lock(m_);
  return rng_.one_in(2);
}

}  // namespace starlane::kv::mem
