#include "client/takeover/records.h"

#include "client/takeover/record_codec.h"

namespace starlane::client {

SetRecord record_of(const SetStat& change) {
  const auto bit = [](bool has, std::uint32_t value) { return has ? value : 0; };
  const WallTime atime = change.atime.value_or(WallTime());
  const WallTime mtime = change.mtime.value_or(WallTime());
  return {.which = bit(change.mode.has_value(), SetRecord::kMode) |
                   bit(change.uid.has_value(), SetRecord::kUid) |
                   bit(change.gid.has_value(), SetRecord::kGid) |
                   bit(change.atime.has_value(), SetRecord::kAtime) |
                   bit(change.mtime.has_value(), SetRecord::kMtime),
          .mode = change.mode.value_or(0),
          .uid = change.uid.value_or(0),
          .gid = change.gid.value_or(0),
          .atime_seconds = atime.seconds,
          .mtime_seconds = mtime.seconds,
          .atime_nanoseconds = atime.nanoseconds,
          .mtime_nanoseconds = mtime.nanoseconds};
}

SetStat change_of(const SetRecord& record) {
  SetStat change;
  if (record.which & SetRecord::kMode) change.mode = record.mode;
  if (record.which & SetRecord::kUid) change.uid = record.uid;
  if (record.which & SetRecord::kGid) change.gid = record.gid;
  if (record.which & SetRecord::kAtime)
    change.atime = WallTime{record.atime_seconds, record.atime_nanoseconds};
  if (record.which & SetRecord::kMtime)
    change.mtime = WallTime{record.mtime_seconds, record.mtime_nanoseconds};
  return change;
}

std::vector<std::byte> encode(const ViewRecord& view) {
  return RecordWriter()
      .number(view.branch.value)
      .number(view.view.value)
      .number(static_cast<std::uint8_t>(view.frozen))
      .number(static_cast<std::uint8_t>(view.target.read_only))
      .text(view.target.volume)
      .text(view.target.image_name)
      .text(view.target.image_version)
      .take();
}

std::optional<ViewRecord> decode_view(ByteSpan value) {
  RecordReader reader(value);
  ViewRecord view;
  view.branch.value = reader.number<decltype(view.branch.value)>();
  view.view.value = reader.number<decltype(view.view.value)>();
  view.frozen = reader.number<std::uint8_t>() != 0;
  view.target.read_only = reader.number<std::uint8_t>() != 0;
  view.target.volume = reader.text();
  view.target.image_name = reader.text();
  view.target.image_version = reader.text();
  if (!reader.good()) return std::nullopt;
  return view;
}

std::vector<std::byte> encode(const ListedPage& page) {
  RecordWriter writer;
  writer.number(static_cast<std::uint8_t>(page.end));
  for (const ListedName& name : page.names)
    writer.number(name.inode.value).number(name.ino).number(name.type).text(name.name);
  return writer.take();
}

std::optional<ListedPage> decode_page(ByteSpan value) {
  RecordReader reader(value);
  ListedPage page;
  page.end = reader.number<std::uint8_t>() != 0;
  while (reader.good() && !reader.at_end()) {
    ListedName name;
    name.inode.value = reader.number<decltype(name.inode.value)>();
    name.ino = reader.number<std::uint64_t>();
    name.type = reader.number<std::uint32_t>();
    name.name = reader.text();
    page.names.push_back(std::move(name));
  }
  if (!reader.good()) return std::nullopt;
  return page;
}

}  // namespace starlane::client
