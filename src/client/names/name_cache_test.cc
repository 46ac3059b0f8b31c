#include "client/names/name_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "client/handles/directory_handle.h"
#include "client/handles/holes.h"
#include "client/names/nodes.h"
#include "client/session/requests.h"
#include "common/manual_clock.h"

namespace starlane::client {
namespace {

constexpr BranchId kBranch{5};

Attributes file_with(std::uint64_t inode, std::uint64_t version) {
  Attributes attributes;
  attributes.inode = InodeId(inode);
  attributes.mode = S_IFREG | 0644;
  attributes.version = version;
  attributes.length = version * 10;
  return attributes;
}

class NameCacheTest : public ::testing::Test {
 protected:
  ManualClock clock;
  NameCache cache{clock, {}};
  Attached shared{{}, kBranch, ViewId(1), false};
  Attached frozen{{}, kBranch, ViewId(1), true};
  const FileKey root{kBranch, kRootInode};
};

TEST_F(NameCacheTest, SharedAnswersLastASecondFromWhenTheyWereAsked) {
  const auto question = cache.ask();
  clock.advance(std::chrono::milliseconds(300));
  cache.learn_attributes(question, kBranch, file_with(7, 1));
  EXPECT_EQ(cache.attributes(shared, InodeId(7))->valid, std::chrono::milliseconds(700));
  clock.advance(std::chrono::milliseconds(700));
  EXPECT_FALSE(cache.attributes(shared, InodeId(7)));
  EXPECT_TRUE(cache.attributes(frozen, InodeId(7)));
}

TEST_F(NameCacheTest, AbsenceIsBelievedInFrozenTreesOnly) {
  cache.learn_name(cache.ask(), root, "no", InodeId());
  cache.learn_name(cache.ask(), root, "yes", InodeId(9));
  EXPECT_FALSE(cache.name(shared, kRootInode, "no"));
  EXPECT_TRUE(cache.name(frozen, kRootInode, "no"));
  EXPECT_EQ(cache.name(shared, kRootInode, "yes")->value, InodeId(9));
}

TEST_F(NameCacheTest, AnAnswerAskedBeforeAChangeIsNotKept) {
  const auto before = cache.ask();
  { NameCache::Change(cache).touch_name(root, "f"); }
  cache.learn_name(before, root, "f", InodeId(1));
  EXPECT_FALSE(cache.name(shared, kRootInode, "f"));
  EXPECT_FALSE(cache.still_fresh(before, root, "f"));

  NameCache::Change change(cache);
  change.touch_name(root, "f");
  cache.learn_name(cache.ask(), root, "f", InodeId(1));  // asked while it is under way
  EXPECT_FALSE(cache.name(shared, kRootInode, "f"));
}

TEST_F(NameCacheTest, OfTwoChangesAtOnceNeitherOutcomeIsKept) {
  cache.learn_attributes(cache.ask(), kBranch, file_with(7, 1));
  {
    NameCache::Change one(cache);
    one.touch_attributes({kBranch, InodeId(7)});
    {
      NameCache::Change two(cache);
      two.touch_attributes({kBranch, InodeId(7)});
      two.now({kBranch, InodeId(7)}, file_with(7, 3));
    }
    one.now({kBranch, InodeId(7)}, file_with(7, 2));
  }
  EXPECT_FALSE(cache.attributes(shared, InodeId(7)));
  {
    NameCache::Change alone(cache);
    alone.touch_attributes({kBranch, InodeId(7)});
    alone.now({kBranch, InodeId(7)}, file_with(7, 4));
  }
  EXPECT_EQ(cache.attributes(shared, InodeId(7))->value.version, 4u);
}

TEST_F(NameCacheTest, ACommitBringsContentAndNothingElse) {
  Attributes known = file_with(7, 5);
  cache.learn_attributes(cache.ask(), kBranch, known);
  cache.committed({kBranch, InodeId(7)}, file_with(7, 6));
  EXPECT_EQ(cache.attributes(shared, InodeId(7))->value.length, 60u);
  cache.committed({kBranch, InodeId(7)}, file_with(7, 4));  // an older one, told late
  EXPECT_EQ(cache.attributes(shared, InodeId(7))->value.length, 60u);
  Attributes other = file_with(7, 8);
  other.mode = S_IFREG | 0600;
  cache.committed({kBranch, InodeId(7)}, other);
  EXPECT_FALSE(cache.attributes(shared, InodeId(7)));
}

TEST_F(NameCacheTest, IsBounded) {
  NameCache small(clock, {.attributes = 64, .names = 64, .xattrs = 64});
  for (std::uint64_t i = 1; i < 10'000; ++i) {
    small.learn_attributes(small.ask(), kBranch, file_with(i, 1));
    small.learn_name(small.ask(), root, std::to_string(i), InodeId(i));
  }
  EXPECT_LE(small.size(), 2u * 96 + 64);
  EXPECT_TRUE(small.attributes(shared, InodeId(9'999)));
}

TEST(NodesTest, CountsLookups) {
  Nodes nodes;
  const Node node{1, 0, InodeId(4)};
  nodes.looked_up(node, kRootInode, "a");
  nodes.looked_up(node, kRootInode, "b");
  EXPECT_EQ(nodes.found_by(node)->name, "b");
  nodes.set_pages(node, 3);
  nodes.committed(node, 2, 9);
  EXPECT_EQ(nodes.content(node).pages, 3u);
  nodes.committed(node, 3, 4);
  EXPECT_EQ(nodes.content(node).pages, 4u);
  EXPECT_FALSE(nodes.forget(node, 1));
  EXPECT_TRUE(nodes.forget(node, 1));
  EXPECT_FALSE(nodes.forget(node, 1));
  EXPECT_EQ(nodes.size(), 0u);
}

TEST(RequestsTest, OldestFollowsWhatIsUnanswered) {
  Requests requests;
  std::uint64_t first = 0;
  {
    const auto one = requests.begin(10);
    first = one.value();
    EXPECT_NE(requests.begin(10, 1).value(), first);
    EXPECT_EQ(requests.begin(10).value(), first);  // sent again: the same
    (void)requests.begin(12);
    EXPECT_LE(requests.oldest(), first);
    EXPECT_LE(requests.oldest(), first);
  }
  (void)requests.oldest();
  EXPECT_GT(requests.oldest(), first);
}

TEST(HolesTest, LaterEntriesShadow) {
  pb::Chunk chunk;
  const auto add = [&](std::uint32_t position, std::uint32_t length, pb::SliceEntry::Kind kind) {
    pb::SliceEntry* entry = chunk.add_entries();
    entry->set_position(position);
    entry->set_length(length);
    entry->set_kind(kind);
  };
  add(100, 100, pb::SliceEntry::DATA);
  add(300, 100, pb::SliceEntry::INLINE);
  add(150, 200, pb::SliceEntry::ZERO);
  add(160, 10, pb::SliceEntry::DATA);
  add(200, 10, pb::SliceEntry::DATA);
  add(210, 5, pb::SliceEntry::DATA);
  const auto look = [&](HoleSearch::For what, std::uint64_t at, std::uint64_t length) {
    return HoleSearch(what, at).look(chunk, length).value_or(UINT64_MAX);
  };
  const DataRange first = data_of(chunk).front();
  EXPECT_EQ(look(HoleSearch::For::data, 0, kChunkSize), first.begin);
  EXPECT_EQ(look(HoleSearch::For::hole, first.begin, kChunkSize), first.end);
  EXPECT_EQ(look(HoleSearch::For::data, first.begin, first.begin), UINT64_MAX);
  EXPECT_EQ(data_of(chunk),
            (std::vector<DataRange>{{100, 150}, {160, 170}, {200, 215}, {350, 400}}));
}

}  // namespace
}  // namespace starlane::client
