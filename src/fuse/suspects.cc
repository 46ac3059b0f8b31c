#include "fuse/suspects.h"

#include "client/takeover/records.h"

namespace starlane::fuse {
namespace {

client::Ledger::Key key_of(std::uint64_t unique) { return {client::Ledger::Kind::suspect, unique}; }

}  // namespace

Suspects::Suspects(client::Ledger* ledger, bool after_crash) : ledger_(ledger) {
  if (ledger_ == nullptr || !after_crash) return;
  for (const client::Ledger::Entry& entry : ledger_->all(client::Ledger::Kind::suspect)) {
    auto suspect = client::plain_of<client::SuspectRecord>(entry.value);
    if (!suspect) continue;
    ++suspect->crashes;
    ledger_->note_plain(entry.key, *suspect);
  }
}

bool Suspects::begin(std::uint64_t unique) {
  if (ledger_ == nullptr) return true;
  const auto known = ledger_->get(key_of(unique));
  const auto suspect = known ? client::plain_of<client::SuspectRecord>(*known) : std::nullopt;
  if (suspect) return suspect->crashes < kCrashes;
  ledger_->note_plain(key_of(unique), client::SuspectRecord{});
  return true;
}

void Suspects::end(std::uint64_t unique) {
  if (ledger_ != nullptr) ledger_->erase(key_of(unique));
}

}  // namespace starlane::fuse
