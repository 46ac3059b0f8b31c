#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "common/bytes.h"

namespace starlane::cli {
namespace {

TEST(Terminal, WritesSizesRatesAndTimesForPeople) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(20_GiB), "20.0 GiB");
  EXPECT_EQ(human_rate(2.61e9), "2.61 GB/s");
  EXPECT_EQ(human_count(1234567), "1 234 567");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_duration(std::chrono::seconds(200)), "3 min 20 s");
  EXPECT_EQ(human_duration(std::chrono::microseconds(40)), "40 us");
}

TEST(Terminal, TablesAlignNumbersRightAndCountCodePoints) {
  Table table({"NAME", "SIZE"});
  table.add({"数据", "7"});
  table.add({"longer", "1234"});
  EXPECT_EQ(table.render(), "NAME    SIZE\n数据         7\nlonger  1234\n");
}

}  // namespace
}  // namespace starlane::cli
