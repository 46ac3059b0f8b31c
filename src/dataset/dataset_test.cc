#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dataset/image_tree.h"
#include "dataset/source_tree.h"
#include "dataset/tree_digest.h"

namespace starlane::dataset {
namespace {

ContentHash hash_of(std::string_view text) {
  ContentHasher hasher;
  hasher.update(bytes_of(text));
  return hasher.finish();
}

TEST(TreeDigest, DependsOnWhatIsThereNotOnTheOrder) {
  TreeDigest one, two, other_name, other_content, other_mode, other_xattr;
  one.add("a", 0100644, 1, hash_of("x"), {});
  one.add("b/c", 0100644, 1, hash_of("y"), {});
  two.add("b/c", 0100644, 1, hash_of("y"), {});
  two.add("a", 0100644, 1, hash_of("x"), {});
  other_name.add("a", 0100644, 1, hash_of("x"), {});
  other_name.add("b/d", 0100644, 1, hash_of("y"), {});
  other_content.add("a", 0100644, 1, hash_of("z"), {});
  other_content.add("b/c", 0100644, 1, hash_of("y"), {});
  other_mode.add("a", 0100600, 1, hash_of("x"), {});
  other_mode.add("b/c", 0100644, 1, hash_of("y"), {});
  other_xattr.add("a", 0100644, 1, hash_of("x"), {{"user.k", "v"}});
  other_xattr.add("b/c", 0100644, 1, hash_of("y"), {});
  EXPECT_EQ(one.finish(), two.finish());
  for (const TreeDigest* other : {&other_name, &other_content, &other_mode, &other_xattr})
    EXPECT_NE(one.finish(), other->finish());
}

TEST(SplitPath, CutsAtTheLastSlash) {
  EXPECT_EQ(split_path("a"), (std::pair<std::string, std::string>("", "a")));
  EXPECT_EQ(split_path("a/b/c"), (std::pair<std::string, std::string>("a/b", "c")));
}

class SourceTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/starlane-source-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(base_); }
  std::filesystem::path base_;
};

TEST_F(SourceTreeTest, ListsParentsBeforeChildrenAndCountsBytes) {
  std::filesystem::create_directories(base_ / "b/c");
  std::ofstream(base_ / "b/c/f") << "12345";
  std::ofstream(base_ / "a") << "123";
  std::filesystem::create_symlink("a", base_ / "link");
  const auto tree = read_source_tree(base_);
  ASSERT_TRUE(tree.ok());
  ASSERT_EQ(tree->directories.size(), 2U);
  EXPECT_EQ(tree->directories[0].path, "b");
  EXPECT_EQ(tree->directories[1].path, "b/c");
  ASSERT_EQ(tree->files.size(), 3U);
  EXPECT_EQ(tree->files[1].path, "b/c/f");
  EXPECT_EQ(tree->bytes, 8U);
}

TEST_F(SourceTreeTest, RefusesWhatCannotBePublished) {
  EXPECT_EQ(read_source_tree(base_ / "none").code(), Errc::not_found);
  std::ofstream(base_ / "f") << "x";
  EXPECT_EQ(read_source_tree(base_ / "f").code(), Errc::not_directory);
  ASSERT_EQ(::mkfifo((base_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_source_tree(base_).code(), Errc::unsupported);
}

}  // namespace
}  // namespace starlane::dataset
