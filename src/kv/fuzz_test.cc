// What an embedded engine finds in its storage, fuzzed (common/fuzz.h): rows with their versions,
// accumulators, and its own row. Damage is told by the transaction that meets it, and by no other.
#include "common/fuzz.h"

#include "kv/mem/mem_storage.h"
#include "kv/occ/format.h"
#include "kv/occ/resolver.h"

namespace starlane::kv::occ {
namespace {

bool opens(const std::shared_ptr<mem::Disk>& disk) {
  const auto sequence = [&] {
    const auto stored = disk->open()->view().value()->get(kSequenceKey).value();
    return decode_sequence(stored.value_or(""));
  };
  const auto before = sequence();
  if (!taken(Resolver::open(disk->open(), {.name = "fuzz"}))) return false;
  EXPECT_GT(sequence().value(), before.value()) << "a version would be given out twice";
  return true;
}

bool transactions(Resolver& engine) {
  const auto t = engine.begin();
  const auto row = t->get("row");
  const auto total = t->total("total");
  const bool rows = taken(row), totals = taken(total);
  EXPECT_EQ(taken(t->scan({"r", "s", 10})), rows);
  EXPECT_EQ(taken(t->totals({"total", "other"})), totals);
  EXPECT_TRUE(t->get("sound").ok());
  t->put("sound", "value");
  EXPECT_TRUE(t->commit(Durability::ordered).ok());
  const auto touching = engine.begin();
  touching->touch("row");
  const Status touched = touching->commit(Durability::ordered);
  EXPECT_EQ(touched.ok(), rows) << touched.to_string();
  for (const auto change : {&Transaction::add, &Transaction::max}) {
    const auto adding = engine.begin();
    ((*adding).*change)("total", INT64_MAX);
    const Status added = adding->commit(Durability::ordered);
    EXPECT_NE(added.ok(), !added.text().empty());
    if (!totals) {
      EXPECT_FALSE(added.ok());
    }
  }
  return rows || totals;
}

TEST(Fuzz, WhatAnEngineFinds) {
  Fuzz fuzz("kv");
  for (int i = 0; i < 10; ++i) {
    const Version version = fuzz.rng().next();
    const Total total{TotalKind::sum, static_cast<std::int64_t>(fuzz.rng().next())};
    EXPECT_EQ(decode_sequence(encode_sequence(version)).value(), version);
    EXPECT_EQ(decode_total(encode(total))->value, total.value);
    fuzz.add(encode_sequence(version));
    fuzz.add(encode(total));
    fuzz.add(row_value("value"));
  }
  fuzz.add(encode(Total{TotalKind::greatest, INT64_MIN}));
  fuzz.set_allowance(1 << 20);
  fuzz.run([](ByteSpan bytes) {
    const auto own = std::make_shared<mem::Disk>(), rest = std::make_shared<mem::Disk>();
    EXPECT_TRUE(own->open()->write({{kSequenceKey, text_of(bytes)}}).ok());
    const bool opened = opens(own);
    const std::string row = row_key("row"), total = total_key("total"), sound = row_key("sound");
    const std::string value = row_value("value");
    EXPECT_TRUE(
        rest->open()->write({{row, text_of(bytes)}, {total, text_of(bytes)}, {sound, value}}).ok());
    const auto engine = Resolver::open(rest->open(), {.name = "fuzz"});
    EXPECT_TRUE(engine.ok());
    return transactions(**engine) || opened;
  });
}

}  // namespace
}  // namespace starlane::kv::occ
