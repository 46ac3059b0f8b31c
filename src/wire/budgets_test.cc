#include "wire/budgets.h"

#include <gtest/gtest.h>

#include "common/bytes.h"

namespace starlane::wire {
namespace {

std::uint64_t all(const Budgets& b) {
  return b.meta_cache_bytes + b.node_cache_bytes + b.block_cache_bytes + b.dirty_bytes +
         b.tree_names_bytes;
}

TEST(Budgets, FitSmallAndLargeMachines) {
  for (const std::uint64_t memory : {4_GiB, 24_GiB, 512_GiB, 2048_GiB})
    EXPECT_LE(all(budgets_for({memory, 8})), memory * 2 / 5) << memory;
  const Budgets small = budgets_for({4_GiB, 2});
  EXPECT_EQ(small.node_cache_bytes, 1_GiB);
  EXPECT_EQ(small.dirty_bytes, 128_MiB);
  EXPECT_EQ(small.workers, 16U);
  EXPECT_EQ(small.fetch_threads, 8U);
  const Budgets large = budgets_for({2048_GiB, 128});
  EXPECT_EQ(large.node_cache_bytes, 512_GiB);
  EXPECT_EQ(large.dirty_bytes, 1_GiB);
  EXPECT_EQ(large.workers, 256U);
  EXPECT_EQ(large.fetch_threads, 64U);
}

TEST(Budgets, NothingIsKnown) { EXPECT_EQ(all(budgets_for({0, 0})), all(budgets_for({4_GiB, 1}))); }

TEST(Budgets, ThisMachine) {
  const HostSize host = host_size();
  EXPECT_GE(host.cores, 1U);
  EXPECT_GT(host.memory_bytes, available_memory() / 2);
  EXPECT_EQ(own_budgets().node_cache_bytes, budgets_for(host).node_cache_bytes);
}

}  // namespace
}  // namespace starlane::wire
