#include "meta/members/member_rows.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxTargets = 65'536;

}  // namespace

std::string SessionRow::encode() const {
  RowEncoder encoder(header);
  encoder(opened);
  encoder.text(host);
  encoder.text(purpose);
  encoder.text(nonce);
  return encoder.take();
}

Result<SessionRow> SessionRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  SessionRow row;
  row.header = decoder.header;
  decoder(row.opened);
  row.host = decoder.text();
  row.purpose = decoder.text();
  row.nonce = decoder.text();
  if (!decoder.done()) return damaged("session");
  return row;
}

Result<NumberRow> NumberRow::decode(std::string_view value) {
  return decode_row<NumberRow>(value, "number");
}

Result<AttachmentRow> AttachmentRow::decode(std::string_view value) {
  AttachmentRow row = SL_TRY(decode_row<AttachmentRow>(value, "attachment"));
  if (row.lease > Lease::recalled) return damaged("attachment");
  return row;
}

std::string ScrubRow::encode() const {
  RowEncoder encoder(header);
  encoder(started, finished, blocks, bytes, damaged_blocks);
  encoder.text(cursor);
  return encoder.take();
}

Result<ScrubRow> ScrubRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  ScrubRow row;
  row.header = decoder.header;
  decoder(row.started, row.finished, row.blocks, row.bytes, row.damaged_blocks);
  row.cursor = decoder.text();
  if (!decoder.done()) return damaged("scrub");
  return row;
}

std::string MapRow::encode() const {
  RowEncoder encoder(header, 64 * (targets.size() + 1));
  encoder(static_cast<std::uint32_t>(targets.size()));
  for (const TargetRow& target : targets) {
    encoder(target.id, target.weight, target.state, target.capacity_bytes);
    encoder.text(target.endpoint);
    encoder.text(target.domain);
  }
  return encoder.take();
}

Result<MapRow> MapRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  MapRow row;
  row.header = decoder.header;
  std::uint32_t count = 0;
  decoder(count);
  if (!decoder.ok() || count > kMaxTargets) return damaged("cluster map");
  for (std::uint32_t i = 0; i < count && decoder.ok(); ++i) {
    TargetRow target;
    decoder(target.id, target.weight, target.state, target.capacity_bytes);
    target.endpoint = decoder.text();
    target.domain = decoder.text();
    row.targets.push_back(std::move(target));
  }
  if (!decoder.done()) return damaged("cluster map");
  return row;
}

}  // namespace starlane::meta
