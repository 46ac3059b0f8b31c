#include "meta/library/library_rows.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kNumberSize = 16;  // of a branch, in hexadecimal

}  // namespace

Result<VolumeRow> VolumeRow::decode(std::string_view value) {
  VolumeRow row = SL_TRY(decode_row<VolumeRow>(value, "volume"));
  if (!row.branch) return damaged("volume");
  return row;
}

std::string ImageRow::encode() const {
  RowEncoder encoder(header);
  encoder(branch, state, created, files, directories, bytes);
  encoder.text(source);
  encoder.text(digest);
  return encoder.take();
}

Result<ImageRow> ImageRow::decode(std::string_view value) {
  RowDecoder decoder(value);
  ImageRow row;
  row.header = decoder.header;
  decoder(row.branch, row.state, row.created, row.files, row.directories, row.bytes);
  row.source = decoder.text();
  row.digest = decoder.text();
  const bool known = row.state >= ImageState::publishing && row.state <= ImageState::deleting;
  if (!decoder.done() || !row.branch || !known) return damaged("data set");
  return row;
}

std::string deleting_name(BranchId branch, std::string_view name) {
  std::string out(1, kDeletingPrefix);
  for (int shift = 60; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[branch.value >> shift & 15]);
  return out.append(name);
}

bool is_deleting_name(std::string_view name) {
  return name.size() > kNumberSize && name.front() == kDeletingPrefix;
}

std::string_view name_before_deleting(std::string_view name) {
  return is_deleting_name(name) ? name.substr(1 + kNumberSize) : name;
}

}  // namespace starlane::meta
