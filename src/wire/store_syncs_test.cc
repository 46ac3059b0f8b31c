#include "wire/store_syncs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "wire/roles.h"

namespace starlane::wire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A store whose sync can be held up and made to fail.
class OneStore final : public BlockService {
 public:
  Status sync(const Call&, TargetId) override {
    MutexLock lock(m_);
    ++syncs_;
    changed_.notify_all();
    while (held_) changed_.wait(m_);
    return answer_;
  }
  void hold(bool held) {
    MutexLock lock(m_);
    held_ = held;
    changed_.notify_all();
  }
  void answer(Status status) {
    MutexLock lock(m_);
    answer_ = std::move(status);
  }
  int syncs() {
    MutexLock lock(m_);
    return syncs_;
  }

  Status put(const Call&, const PutBlock&, BulkSource&) override { return none(); }
  Result<GetBlockReply> get(const Call&, const GetBlock&, BulkSink&) override { return none(); }
  Status remove_slice(const Call&, TargetId, BranchId, SliceId) override { return none(); }
  Result<BlockListing> list(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return none();
  }
  Result<BlockListing> verify(const Call&, TargetId, const std::string&, std::uint32_t) override {
    return none();
  }
  Result<std::vector<TargetInfo>> targets(const Call&) override { return none(); }

 private:
  static Status none() { return Status(Errc::not_implemented, "not asked here"); }

  Mutex m_;
  CondVar changed_;
  bool held_ SL_GUARDED_BY(m_) = false;
  int syncs_ SL_GUARDED_BY(m_) = 0;
  Status answer_ SL_GUARDED_BY(m_);
};

class StoreSyncsTest : public testing::Test {
 protected:
  StoreSyncsTest() {
    for (std::uint32_t id = 1; id <= 3; ++id) {
      pb::Target* target = map_.add_targets();
      target->set_id(id);
      target->set_endpoint("store " + std::to_string(id));
    }
  }
  /// 1 is in this process, 2 and 3 are elsewhere.
  StoreSyncs::Place find(const std::string& endpoint) {
    const std::size_t number = static_cast<std::size_t>(endpoint.back() - '1');
    return {{std::shared_ptr<void>(), &stores_[number]}, number == 0};
  }

  pb::ClusterMap map_;
  OneStore stores_[3];
};

TEST_F(StoreSyncsTest, AsksEveryStoreOnce) {
  StoreSyncs syncs([this](const std::string& endpoint) { return find(endpoint); }, {});
  const auto outcome = syncs.sync(map_);
  EXPECT_TRUE(outcome.failure.ok());
  EXPECT_THAT(outcome.left_out, IsEmpty());
  for (OneStore& store : stores_) EXPECT_EQ(store.syncs(), 1);
}

TEST_F(StoreSyncsTest, AStoreThatIsAwayIsLeftOutAndOneThatCannotSyncIsAFailure) {
  StoreSyncs syncs([this](const std::string& endpoint) { return find(endpoint); }, {});
  stores_[1].answer(Status(Errc::unavailable, "nobody there"));
  auto outcome = syncs.sync(map_);
  EXPECT_TRUE(outcome.failure.ok());
  EXPECT_THAT(outcome.left_out, ElementsAre(TargetId(2)));
  for (OneStore* broken : {&stores_[0], &stores_[2]}) {
    broken->answer(Status(Errc::io, "the device is broken"));
    EXPECT_EQ(syncs.sync(map_).failure.code(), Errc::io);
    broken->answer({});
  }
}

TEST_F(StoreSyncsTest, AStoreThatHangsIsWaitedForOnceAndCountsAgainWhenItAnswers) {
  StoreSyncs syncs([this](const std::string& endpoint) { return find(endpoint); },
                   {.patience = Milliseconds(20)});
  stores_[2].hold(true);
  EXPECT_THAT(syncs.sync(map_).left_out, ElementsAre(TargetId(3)));
  EXPECT_THAT(syncs.sync(map_).left_out, ElementsAre(TargetId(3)));
  EXPECT_EQ(stores_[2].syncs(), 1) << "one call under way is enough";
  stores_[2].hold(false);
  // The answer that was under way says nothing of what came after it was asked for.
  while (!syncs.sync(map_).left_out.empty()) {
  }
  EXPECT_GE(stores_[2].syncs(), 2);
}

/// A metadata server as a role, and a store that it reaches by direct call.
class MetaFlushTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/starlane-wire-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    const auto site = Site::open_or_create(base_ / "site");
    ASSERT_TRUE(site.ok()) << site.status().to_string();
    network_ = std::move(Network::open(site->key_file().string()).value());
    network_->add_local("unix:/here", store_);
    role_ = std::move(MetaRole::start(*site, {}).value());
    ASSERT_TRUE(role_->sync_before_flush(*network_).ok());
    pb::RegisterTargetsRequest request;
    pb::Target* target = request.add_targets();
    target->set_id(1);
    target->set_weight(1);
    target->set_endpoint("unix:/here");
    pb::ClusterMap map;
    ASSERT_TRUE(role_->service().register_targets({}, request, &map).ok());
  }
  void TearDown() override {
    role_.reset();
    network_.reset();
    std::filesystem::remove_all(base_);
  }
  /// A change that is only ordered, and then a flush.
  Status change_and_flush() {
    pb::OpenSessionRequest open;
    open.set_host("here");
    pb::OpenSessionReply opened;
    SL_TRY(role_->service().open_session({}, open, &opened));
    pb::Empty nothing;
    return role_->service().flush({}, pb::FlushRequest(), &nothing);
  }

  std::filesystem::path base_;
  OneStore store_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<MetaRole> role_;
};

TEST_F(MetaFlushTest, SyncsTheStoresFirst) {
  const int before = store_.syncs();
  ASSERT_TRUE(change_and_flush().ok());
  EXPECT_GT(store_.syncs(), before);
}

TEST_F(MetaFlushTest, IsNoneWhenAStoreCannotSyncAndGoesOnWithoutOneThatIsAway) {
  store_.answer(Status(Errc::io, "the device is broken"));
  EXPECT_EQ(change_and_flush().code(), Errc::io);
  store_.answer(Status(Errc::unavailable, "nobody there"));
  EXPECT_TRUE(change_and_flush().ok());
  store_.answer({});
  EXPECT_TRUE(change_and_flush().ok());
  EXPECT_TRUE(role_->stop().ok());
}

}  // namespace
}  // namespace starlane::wire
