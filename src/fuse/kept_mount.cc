#include "fuse/kept_mount.h"

#include "client/takeover/record_codec.h"

namespace starlane::fuse {
namespace {

void put_texts(client::RecordWriter& writer, const std::vector<std::string>& texts) {
  writer.number(static_cast<std::uint16_t>(texts.size()));
  for (const std::string& text : texts) writer.text(text);
}

std::vector<std::string> take_texts(client::RecordReader& reader) {
  std::vector<std::string> texts;
  for (auto left = reader.number<std::uint16_t>(); left > 0 && reader.good(); --left)
    texts.push_back(reader.text());
  return texts;
}

}  // namespace

std::vector<std::byte> encode(const KeptMount& kept) {
  client::RecordWriter writer;
  writer.number(static_cast<std::uint8_t>(kept.mount.privileged))
      .number(static_cast<std::uint8_t>(kept.mount.for_all_users))
      .number(static_cast<std::uint8_t>(kept.passthrough))
      .number(static_cast<std::uint8_t>(kept.wide_setxattr))
      .number(static_cast<std::uint8_t>(kept.kernel_checks_flags))
      .number(static_cast<std::uint8_t>(kept.raised_read_ahead))
      .number(kept.max_write)
      .number(kept.heard.major)
      .number(kept.heard.minor)
      .number(kept.heard.max_readahead)
      .number(kept.heard.flags)
      .number(kept.heard.flags2)
      .text(kept.mount.mountpoint)
      .text(kept.mount.device_number);
  put_texts(writer, kept.limitations);
  put_texts(writer, kept.bound);
  return writer.take();
}

Result<KeptMount> kept_mount(client::Ledger* ledger) {
  const auto value = ledger == nullptr ? std::nullopt : ledger->get({client::Ledger::Kind::mount});
  if (!value) return Status(Errc::invalid, "the mount's ledger does not say what is mounted");
  client::RecordReader reader(*value);
  KeptMount kept;
  kept.mount.privileged = reader.number<std::uint8_t>() != 0;
  kept.mount.for_all_users = reader.number<std::uint8_t>() != 0;
  kept.passthrough = reader.number<std::uint8_t>() != 0;
  kept.wide_setxattr = reader.number<std::uint8_t>() != 0;
  kept.kernel_checks_flags = reader.number<std::uint8_t>() != 0;
  kept.raised_read_ahead = reader.number<std::uint8_t>() != 0;
  kept.max_write = reader.number<std::uint32_t>();
  kept.heard.major = reader.number<std::uint32_t>();
  kept.heard.minor = reader.number<std::uint32_t>();
  kept.heard.max_readahead = reader.number<std::uint32_t>();
  kept.heard.flags = reader.number<std::uint32_t>();
  kept.heard.flags2 = reader.number<std::uint32_t>();
  kept.mount.mountpoint = reader.text();
  kept.mount.device_number = reader.text();
  kept.limitations = take_texts(reader);
  kept.bound = take_texts(reader);
  if (!reader.good()) return Status(Errc::invalid, "the mount's ledger is damaged");
  return kept;
}

}  // namespace starlane::fuse
