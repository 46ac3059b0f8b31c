#include "client/write/reclaim.h"

#include <gtest/gtest.h>

#include <future>

#include "client/write/fake_services.h"

namespace starlane::client {
namespace {

constexpr BranchId kBranch{7};

/// A volume with so many files in its trash, whose list comes when it is let.
class Trash final : public NoMeta {
 public:
  Status trash_list(const Call&, const pb::TrashListRequest&, pb::TrashListReply* reply) override {
    asked_.set_value();
    let_.get_future().wait();
    for (int i = 0; i < files_; ++i) reply->add_entries()->mutable_attributes()->set_bytes(1_MiB);
    return {};
  }
  Status trash_empty(const Call&, const pb::TrashEmptyRequest& request,
                     pb::TrashEmptyReply* reply) override {
    reply->set_emptied(static_cast<std::uint64_t>(request.items_size()));
    return {};
  }
  Status volume_list(const Call&, const pb::Empty&, pb::ListVolumesReply*) override { return {}; }

  std::promise<void> asked_, let_;
  int files_ = 1;
};

class ReclaimTest : public testing::Test {
 protected:
  bool again() { return reclaim.worth_another_try(kBranch, Interrupts::Scope(interrupts, 0)); }

  Trash trash;
  Interrupts interrupts;
  Reclaim reclaim{trash, {.pause = Milliseconds(1)}};
};

TEST_F(ReclaimTest, SpaceOnItsWayIsWaitedFor) {
  trash.let_.set_value();
  EXPECT_TRUE(again());
  EXPECT_TRUE(again());  // without another look: a second promise would throw
}

TEST_F(ReclaimTest, NothingToThrowAwayIsTheEnd) {
  trash.files_ = 0;
  trash.let_.set_value();
  EXPECT_FALSE(again());
  EXPECT_FALSE(again());
}

TEST_F(ReclaimTest, WhoComesWhileAnotherLooksDoesNotFailBeforeIt) {
  auto first = std::async(std::launch::async, [&] { return again(); });
  trash.asked_.get_future().wait();
  EXPECT_TRUE(again());
  trash.let_.set_value();
  EXPECT_TRUE(first.get());
}

}  // namespace
}  // namespace starlane::client
