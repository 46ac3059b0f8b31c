// What the kernel makes of an image is seen by tests/test_tree_mount.py; here: where bytes lie on
// the device, what an image refuses, and how many are kept.
#include "client/erofs/images.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace starlane::client::erofs {
namespace {

TreeNode directory() {
  TreeNode node;
  node.mode = S_IFDIR | 0755;
  node.rest = std::make_unique<Rest>();
  return node;
}

/// Files of these lengths, whose inodes count from 10.
Tree tree_of(const std::vector<std::uint64_t>& lengths) {
  Tree tree;
  tree.nodes.push_back(directory());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    TreeNode file;
    file.mode = S_IFREG | 0644;
    file.inode = InodeId(10 + i);
    file.state = {1, lengths[i]};
    tree.nodes[0].rest->entries.push_back(
        {"f" + std::to_string(i), static_cast<std::uint32_t>(tree.nodes.size())});
    tree.nodes.push_back(std::move(file));
  }
  return tree;
}

Images::Made make(const std::vector<std::uint64_t>& lengths) {
  auto made = Image::make(tree_of(lengths), 1_MiB);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.value();
}

/// As "inode:offset+length", and "0+length" for zeros.
std::string shown(const std::vector<Image::Part>& parts) {
  std::string text;
  for (const Image::Part& part : parts) {
    text += part.extent == nullptr
                ? "0"
                : std::to_string(part.extent->inode.value) + ":" + std::to_string(part.offset);
    text += "+" + std::to_string(part.length) + " ";
  }
  return text;
}

TEST(ErofsImage, EveryFileBeginsABlockAndEndsInZeros) {
  const auto image = make({5000, 0, 1, 4096});
  EXPECT_EQ(image->data_length(), 4 * kBlock);
  EXPECT_EQ(shown(image->parts(0, 1_MiB)), "10:0+5000 0+3192 12:0+1 0+4095 13:0+4096 ");
  EXPECT_EQ(shown(image->parts(4096, 4096)), "10:4096+904 0+3192 ");
  EXPECT_EQ(shown(image->parts(6000, 100)), "0+100 ");
  EXPECT_EQ(shown(image->parts(8191, 3)), "0+1 12:0+1 0+1 ");
  EXPECT_EQ(shown(image->parts(4 * kBlock, 10)), "");
  EXPECT_EQ(shown(make({0})->parts(0, 10)), "");
}

TEST(ErofsImage, RefusesWhatItCannotSay) {
  EXPECT_EQ(Image::make(tree_of({17ULL << 40}), 1_MiB).code(), Errc::file_too_large);
  EXPECT_EQ(Image::make(tree_of(std::vector<std::uint64_t>(100, 1)), 10'000).code(),
            Errc::file_too_large);
  Tree tree = tree_of({1});
  tree.nodes[1].rest = std::make_unique<Rest>();
  tree.nodes[1].rest->xattrs = {{"user.long", std::string(65536, 'x')}};
  EXPECT_EQ(Image::make(std::move(tree), 1_MiB).code(), Errc::file_too_large);
}

TEST(ErofsImages, OneThatNobodyHasOpenMakesRoom) {
  const Images::Made one = make({1});
  Images images(3 * one->bytes().size());
  int made = 0;
  std::uint64_t room = 0;
  const auto get = [&](std::uint16_t slot, Images::Keep keep) {
    const auto fresh = [&](std::uint64_t most) -> Result<Images::Made> {
      ++made;
      room = most;
      return one;
    };
    EXPECT_TRUE(images.get(slot, keep, fresh, [] { return Status(); }).ok());
  };
  get(1, Images::Keep::for_now);
  get(1, Images::Keep::for_now);
  EXPECT_EQ(made, 1);
  get(2, Images::Keep::until_closed);
  EXPECT_EQ(room, 3 * one->bytes().size());
  get(1, Images::Keep::for_now);
  EXPECT_EQ(made, 3);  // 1 had made room
  EXPECT_EQ(room, 2 * one->bytes().size());
  get(2, Images::Keep::for_now);
  EXPECT_EQ(made, 3);
  images.opened(2);
  images.opened(2);
  images.closed(2);
  get(2, Images::Keep::for_now);
  EXPECT_EQ(made, 3);
  images.closed(2);
  get(2, Images::Keep::for_now);
  EXPECT_EQ(made, 4);
}

}  // namespace
}  // namespace starlane::client::erofs
