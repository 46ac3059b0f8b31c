#include <map>
#include <set>

#include "meta/locks/lock_list.h"
#include "meta/members/fixture.h"
#include "meta/members/flush_marks.h"
#include "meta/rows.h"

namespace starlane::meta {
namespace {

class Fsck : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(site.create_volume("v").ok());
    ASSERT_TRUE(user.attach("v").ok());
    directory = user.mkdir(1, "d").value();
    file = user.create(directory, "f").value();
    slice = user.write(file, 0, 1000).value();
    linked = user.create(1, "one").value();
    ASSERT_TRUE(user.link(linked, directory, "two").ok());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(user.create(directory, "x" + std::to_string(i)).ok());
    gone = user.create(1, "gone").value();
    ASSERT_TRUE(user.unlink(1, "gone", true).ok());
    ASSERT_EQ(site.check(), std::vector<std::string>()) << "clean before anything is planted";
  }
  template <typename Row>
  void edit(const std::string& key, const std::function<void(Row&)>& change) {
    site.edit([&](kv::Transaction& t) -> Status {
      const auto row = SL_TRY(t.get(key));
      Row decoded = SL_TRY(Row::decode(row->value));
      change(decoded);
      t.put(key, decoded.encode());
      return {};
    });
  }
  void remove(const std::string& key) {
    site.edit([&](kv::Transaction& t) -> Status {
      t.del(key);
      return {};
    });
  }
  void put(const std::string& key, const std::string& value) {
    site.edit([&](kv::Transaction& t) -> Status {
      t.put(key, value);
      return {};
    });
  }
  void add(const std::string& key, std::int64_t amount) {
    site.edit([&](kv::Transaction& t) -> Status {
      t.add(key, amount);
      return {};
    });
  }
  /// There are problems, and one of them says this.
  void expect_problem(const std::string& text) {
    const std::vector<std::string> problems = site.check();
    for (const std::string& problem : problems) {
      if (problem.find(text) != std::string::npos) return;
    }
    ADD_FAILURE() << "nothing says \"" << text << "\"; there are " << problems.size()
                  << " problems, first: " << (problems.empty() ? "" : problems[0]);
  }
  std::string inode_row(std::uint64_t inode) { return inode_key(user.branch, InodeId{inode}); }
  std::string entry_row(std::uint64_t parent, const std::string& name) {
    return entry_key(user.branch, InodeId{parent}, name);
  }

  Site site;
  Client user{site};
  std::uint64_t directory = 0, file = 0, slice = 0, linked = 0, gone = 0;
};

TEST_F(Fsck, AnEntryWithoutItsInode) {
  remove(inode_row(file));
  expect_problem("names inode " + std::to_string(file) + ", which does not exist");
}

TEST_F(Fsck, SlicesWithoutTheirInode) {
  remove(inode_row(file));
  expect_problem("slices belong to inode " + std::to_string(file));
}

TEST_F(Fsck, AnInodeWithoutItsEntry) {
  remove(entry_row(directory, "f"));
  expect_problem("inode " + std::to_string(file) + " has no name");
}

TEST_F(Fsck, ADirectoryThatMiscounts) {
  add(accumulator_key(user.branch, InodeId{directory}, What::counts), 1);
  expect_problem("directory " + std::to_string(directory) + " counts 13 entries");
}

TEST_F(Fsck, AnEmptyDirectoryThatCountsEntries) {
  const std::uint64_t empty = user.mkdir(1, "empty").value();
  add(accumulator_key(user.branch, InodeId{empty}, What::counts), 2);
  expect_problem("but has none");
}

TEST_F(Fsck, AnEntryOfAnotherType) {
  edit<EntryRow>(entry_row(directory, "f"), [](EntryRow& row) { row.type = kDirectory >> 12; });
  expect_problem("has another type");
}

TEST_F(Fsck, AParentThatDoesNotKnowTheChild) {
  edit<InodeRow>(inode_row(file), [](InodeRow& row) { row.parent = InodeId{1}; });
  expect_problem("is unknown to inode " + std::to_string(file));
}

TEST_F(Fsck, LinksThatDoNotMatchNames) {
  edit<InodeRow>(inode_row(linked), [](InodeRow& row) { row.nlink = 3; });
  expect_problem("has 3 links but 1 rows for further names");
}

TEST_F(Fsck, AFurtherNameWithoutEntry) {
  remove(entry_row(directory, "two"));
  expect_problem("has no entry");
}

TEST_F(Fsck, TwoNamesOfAFileWithOneLink) {
  EntryRow again;
  again.inode = InodeId{file};
  again.type = kRegular >> 12;
  put(entry_row(directory, "f2"), again.encode());
  expect_problem("has 2 names but one link");
}

TEST_F(Fsck, UsageThatDoesNotMatch) {
  add(accumulator_key(user.branch, InodeId{}, What::bytes), 5);
  expect_problem("usage says 1005 bytes in files, there are 1000");
  add(accumulator_key(user.branch, InodeId{}, What::inodes), -1);
  expect_problem("files and directories");
  add(accumulator_key(user.branch, InodeId{}, What::held), 7);
  expect_problem("usage says 7 bytes held by dead slices, there are 0");
}

TEST_F(Fsck, AFileThatMiscountsItsBytes) {
  edit<InodeRow>(inode_row(file), [](InodeRow& row) { row.bytes = 999; });
  expect_problem("says that it holds 999 bytes, its slices 1000");
}

TEST_F(Fsck, AFileWithBytesAndWithoutSlices) {
  remove(slices_key(user.branch, InodeId{file}, 0));
  expect_problem("holds 1000 bytes but has no slices");
}

TEST_F(Fsck, AnUnlinkedFileThatHasLinks) {
  edit<InodeRow>(inode_row(gone), [](InodeRow& row) { row.nlink = 1; });
  expect_problem("is listed as unlinked but has 1 links");
}

TEST_F(Fsck, AFileWithoutLinksThatNobodyWillFree) {
  remove(site.rows(user.branch, Table::unlinked).at(0).key);
  expect_problem("inode " + std::to_string(gone) +
                 " has no links and is neither listed as unlinked nor in the trash");
}

TEST_F(Fsck, AnUnlinkedFileThatDoesNotExist) {
  remove(inode_row(gone));
  expect_problem("is listed as unlinked but does not exist");
}

TEST_F(Fsck, RowsThatCannotBeRead) {
  put(inode_row(file), "garbage");
  expect_problem("inode " + std::to_string(file) + " cannot be read");
  put(slices_key(user.branch, InodeId{file}, 0), "garbage");
  expect_problem("chunk 0 of inode " + std::to_string(file) + " cannot be read");
  put(entry_row(directory, "x1"), "garbage");
  expect_problem("entry \"x1\"");
}

TEST_F(Fsck, ABranchThatNothingNames) {
  remove(volume_key("v"));
  expect_problem("belongs to no volume or data set");
}

TEST_F(Fsck, ARecordWithoutItsBranch) {
  remove(head_key(user.branch));
  expect_problem("which does not exist");
}

TEST_F(Fsck, ARootThatIsMissing) {
  remove(inode_row(1));
  expect_problem("the root directory is missing");
}

TEST_F(Fsck, AttributesThatNoInodeKnows) {
  put(xattr_key(user.branch, InodeId{99'999}, "user.a"), XattrRow{{}, "1"}.encode());
  expect_problem("belongs to an inode that does not exist");
  put(xattr_key(user.branch, InodeId{file}, "user.b"), XattrRow{{}, "1"}.encode());
  expect_problem("the attribute \"user.b\" of inode " + std::to_string(file) +
                 " is unknown to its inode");
}

TEST_F(Fsck, AHoldThatNobodyHas) {
  put(pin_key(user.branch, InodeId{gone}, SessionId{77'777}), MarkRow{}.encode());
  expect_problem("the hold of session 77777 on inode " + std::to_string(gone) +
                 " will never go: the session does not exist");
  put(pin_key(user.branch, InodeId{99'999}, SessionId{user.session}), MarkRow{}.encode());
  expect_problem("is on an inode that does not exist");
}

TEST_F(Fsck, OutcomesAndReservationsOfASessionThatDoesNotExist) {
  put(outcome_key(user.branch, SessionId{77'777}, 5), OutcomeRow{{}, 23, ""}.encode());
  expect_problem("the outcome of request 5 of session 77777 will never go");
  put(reserved_key(user.branch, SessionId{66'666}, 1'000'000), ReservedRow{{}, 2, 0, 1}.encode());
  expect_problem("the reservation of slices from 1000000 on by session 66666 will never go");
}

TEST_F(Fsck, LocksThatContradictEachOtherOrTheRest) {
  const auto key = [&](std::uint64_t inode) { return lock_key(user.branch, InodeId{inode}); };
  const SessionId session{user.session};
  const LockOwner owner{session, 5};
  const FileLock low{owner, user.epoch, 0, 9}, next{owner, user.epoch, 10, 19};
  put(key(file), LockRow{{}, {low, next}}.encode());
  EXPECT_EQ(site.check(), std::vector<std::string>());
  const std::string locks = "the locks of inode " + std::to_string(file);
  put(key(file), LockRow{{}, {next, low}}.encode());
  expect_problem(locks + " are out of order");
  put(key(file), LockRow{{}, {low, {owner, user.epoch, 9, 19}}}.encode());
  expect_problem(locks + " are out of order, or overlap");
  put(key(file), LockRow{}.encode());
  expect_problem(locks + " are none");
  put(key(file), "?");
  expect_problem(locks + " cannot be read");
  put(key(file), LockRow{{}, {{{SessionId{77'777}, 5}, 1}}}.encode());
  expect_problem("a lock of session 77777 on inode " + std::to_string(file) + " will never go");
  remove(key(file));
  put(key(99'999), LockRow{{}, {{owner, user.epoch + 1}}}.encode());
  EXPECT_EQ(site.check(), std::vector<std::string>()) << "it has ended, and goes with its session";
  put(key(99'999), LockRow{{}, {{owner, user.epoch}}}.encode());
  expect_problem("the locks of inode 99999 are held, but it does not exist");
}

TEST_F(Fsck, WhatWasCommittedShortlyBeforeACrashMayBeUnsynced) {
  const auto told = [&] {
    site.references.clear();
    EXPECT_EQ(site.check(), std::vector<std::string>());
    std::map<std::uint64_t, bool> out;
    for (const auto& reference : site.references)
      if (reference.kind() == "live") out[reference.slice()] = reference.may_be_unsynced();
    return out;
  };
  EXPECT_EQ(told()[slice], false);
  FlushMarks marks(site.engine, site.clock);
  ASSERT_TRUE(marks.begin().ok());
  EXPECT_EQ(told()[slice], false) << "nothing is known of a life before the first mark";
  site.clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(marks.synced(to_ns(site.clock.wall())).ok());
  site.clock.advance(std::chrono::seconds(1));
  const std::uint64_t late = user.create(directory, "late").value();
  const std::uint64_t late_slice = user.write(late, 0, 1000).value();
  EXPECT_EQ(told()[late_slice], false) << "no crash yet";
  site.clock.advance(std::chrono::seconds(1));
  FlushMarks next(site.engine, site.clock);  // no end: it was killed
  ASSERT_TRUE(next.begin().ok());
  EXPECT_EQ(told()[late_slice], true);
  EXPECT_EQ(told()[slice], false);
  ASSERT_TRUE(next.end().ok());
  site.clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(FlushMarks(site.engine, site.clock).begin().ok());
  EXPECT_EQ(site.system_rows(Table::window).size(), 1U) << "one that ended well leaves none";
}

TEST_F(Fsck, TellsEveryReference) {
  const std::uint64_t second = user.write(file, 0, 1000).value();
  const auto reserved = user.reserve(2);
  site.references.clear();
  EXPECT_EQ(site.check(), std::vector<std::string>());
  std::map<std::string, std::set<std::uint64_t>> told;
  for (const auto& reference : site.references) told[reference.kind()].insert(reference.slice());
  EXPECT_EQ(told["live"], std::set<std::uint64_t>{second});
  EXPECT_EQ(told["dead"], std::set<std::uint64_t>{slice});
  EXPECT_EQ(told["reserved"], (std::set<std::uint64_t>{reserved->first(), reserved->first() + 1}));
}

TEST_F(Fsck, ChangesWhileItRunsAreNoProblems) {
  std::uint64_t n = 0;
  std::vector<std::string> problems;
  pb::FsckRequest request;
  request.set_limit(2);
  do {
    const auto page = site.ask(&MetaService::fsck_references, request);
    ASSERT_TRUE(page.ok());
    for (const std::string& problem : page->problems()) problems.push_back(problem);
    request.set_cursor(page->cursor());
    const std::string name = "new" + std::to_string(n++);
    const std::uint64_t inode = user.create(n % 2 ? directory : 1, name).value();
    ASSERT_TRUE(user.write(inode, 0, 10).ok());
    if (n % 3 == 0) {
      ASSERT_TRUE(user.unlink(n % 2 ? directory : 1, name, true).ok());
    }
  } while (!request.cursor().empty() && n < 500);
  EXPECT_EQ(problems, std::vector<std::string>());
}

}  // namespace
}  // namespace starlane::meta
