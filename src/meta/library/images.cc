// image_begin, image_freeze, image_list, image_get, image_delete: versions of data sets.
#include "meta/library/branches.h"
#include "meta/library/library_rows.h"
#include "meta/members/attachments.h"
#include "meta/members/sessions.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxImages = 65'536;  // that one list tells
constexpr std::size_t kMaxSource = 4'096;
constexpr std::size_t kMaxDigest = 256;

std::string thing_of(const pb::ImageRequest& request) {
  return "data set " + request.name() + " version " + request.version();
}

Status check_names(const pb::ImageRequest& request) {
  SL_TRY(check_library_name("the name of a data set", request.name()));
  SL_TRY(check_library_name("the version of a data set", request.version()));
  if (request.source().size() > kMaxSource || request.digest().size() > kMaxDigest) {
    return {Errc::invalid, "the source of a data set has at most 4096 bytes, its digest 256"};
  }
  return {};
}

struct Found {
  ImageRow row;
  kv::Version version = kv::kAbsent;
  HeadRow head;
  kv::Version head_version = kv::kAbsent;
};

Result<std::optional<Found>> look_up(kv::Transaction& t, const pb::ImageRequest& request) {
  const std::optional<kv::Row> row = SL_TRY(t.get(image_key(request.name(), request.version())));
  if (!row) return std::optional<Found>();
  Found found;
  found.row = SL_TRY(ImageRow::decode(row->value));
  found.version = row->version;
  const std::optional<kv::Row> head = SL_TRY(t.get(head_key(found.row.branch)));
  found.head = SL_TRY(need<HeadRow>(head, "data set"));
  found.head_version = head->version;
  return std::optional<Found>(std::move(found));
}

Result<Found> find_image(kv::Transaction& t, const pb::ImageRequest& request) {
  std::optional<Found> found = SL_TRY(look_up(t, request));
  if (!found) return {Errc::not_found, "there is no " + thing_of(request)};
  return std::move(*found);
}

const char* state_name(ImageState state) {
  switch (state) {
    case ImageState::publishing:
      return "publishing";
    case ImageState::published:
      return "published";
    case ImageState::deleting:
      return "deleting";
  }
  return "unknown";
}

Status fill_image(kv::Transaction& t, std::string_view name, std::string_view version,
                  const ImageRow& row, pb::Image* out) {
  const std::string_view shown = name_before_deleting(name);
  out->set_name(shown.data(), shown.size());
  out->set_version(version.data(), version.size());
  out->set_branch(row.branch.value);
  out->set_state(state_name(is_deleting_name(name) ? ImageState::deleting : row.state));
  put_time(row.created, out->mutable_created());
  out->set_files(row.files);
  out->set_directories(row.directories);
  out->set_bytes(row.bytes);
  out->set_source(row.source);
  out->set_digest(row.digest);
  const std::optional<kv::Row> head = SL_TRY(t.get(head_key(row.branch)));
  if (head) out->set_view(SL_TRY(HeadRow::decode(head->value)).view.value);
  const std::int64_t pins = SL_TRY(t.total(image_pins_key(row.branch)));
  out->set_pins(pins > 0 ? static_cast<std::uint64_t>(pins) : 0);
  return {};
}

Status expect_session(kv::Transaction& t, SessionId session) {
  if (!SL_TRY(t.get(session_key(session)))) {
    return {Errc::fenced, "this session was ended by the server: open a new one"};
  }
  t.guard(session_key(session));
  return {};
}

Status put_new_image(Context& context, kv::Transaction& t, const pb::ImageRequest& request,
                     const BranchIds& ids, pb::Image* reply) {
  HeadRow head;
  head.kind = BranchKind::image;
  head.writer = SessionId{request.session()};
  put_branch(context, t, ids, head, Root{});
  ImageRow row;
  row.branch = ids.branch;
  row.created = context.clock.wall();
  row.source = request.source();
  const std::string key = image_key(request.name(), request.version());
  t.expect(key, kv::kAbsent);
  t.put(key, row.encode());
  SL_TRY(fill_image(t, request.name(), request.version(), row, reply));
  reply->set_view(ids.view.value);
  return {};
}

/// Hands a publication that was left to the session. `other`: who has it, if that lives.
Status resume(kv::Transaction& t, const pb::ImageRequest& request, Found& found, SessionId* other) {
  if (found.row.state == ImageState::published) {
    return {Errc::exists, thing_of(request) + " is published already"};
  }
  if (found.row.state == ImageState::deleting || found.head.state != BranchState::active) {
    return {Errc::busy, thing_of(request) + " is being deleted: try again"};
  }
  const SessionId session{request.session()};
  if (found.head.writer == session) return {};
  if (found.head.writer && SL_TRY(t.get(session_key(found.head.writer)))) {
    *other = found.head.writer;
    return {};
  }
  found.head.writer = session;
  t.expect(head_key(found.row.branch), found.head_version);
  t.put(head_key(found.row.branch), found.head.encode());
  return {};
}

Status being_published(const pb::ImageRequest& request) {
  return {Errc::busy,
          thing_of(request) + " is being published by another session: wait for it, or end it"};
}

}  // namespace

Status op_image_begin(Context& context, const Call&, const pb::ImageRequest& request,
                      pb::Image* reply) {
  SL_TRY(check_names(request));
  const BranchIds ids = SL_TRY(new_branch_ids(context));
  for (int attempt = 0; attempt < 2; ++attempt) {
    SessionId other;
    if (const Status done = kv::run(context.engine, kv::Durability::durable,
                                    [&](kv::Transaction& t) -> Status {
                                      reply->Clear();
                                      other = {};
                                      SL_TRY(expect_session(t, SessionId{request.session()}));
                                      std::optional<Found> found = SL_TRY(look_up(t, request));
                                      if (!found)
                                        return put_new_image(context, t, request, ids, reply);
                                      SL_TRY(resume(t, request, *found, &other));
                                      return fill_image(t, request.name(), request.version(),
                                                        found->row, reply);
                                    });
        !done.ok())
      return done;
    if (!other) return {};
    const bool over = SL_TRY(end_if_silent(context, other));
    if (!over) break;
  }
  return being_published(request);
}

Status op_image_freeze(Context& context, const Call&, const pb::ImageRequest& request,
                       pb::Image* reply) {
  SL_TRY(check_names(request));
  return kv::run(context.engine, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    reply->Clear();
    Found found = SL_TRY(find_image(t, request));
    ImageRow& row = found.row;
    if (row.state == ImageState::published &&
        row.digest == request.digest()) {  // The same call again.
      return fill_image(t, request.name(), request.version(), row, reply);
    }
    if (row.state != ImageState::publishing || found.head.state != BranchState::active) {
      return {Errc::read_only, thing_of(request) + " is not being published"};
    }
    SL_TRY(expect_session(t, SessionId{request.session()}));
    if (found.head.writer != SessionId{request.session()}) return being_published(request);
    row.state = ImageState::published;
    row.files = request.files();
    row.directories = request.directories();
    row.bytes = request.bytes();
    row.digest = request.digest();
    if (!request.source().empty()) row.source = request.source();
    const std::string key = image_key(request.name(), request.version());
    t.expect(key, found.version);
    t.put(key, row.encode());
    found.head.state = BranchState::frozen;
    found.head.writer = {};
    count_attachments(found.head, {});
    t.expect(head_key(row.branch), found.head_version);
    t.put(head_key(row.branch), found.head.encode());
    return fill_image(t, request.name(), request.version(), row, reply);
  });
}

Status op_image_list(Context& context, const Call&, const pb::Empty&, pb::ListImagesReply* reply) {
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const KeyRange range = table_range(Space::system, BranchId{}, Table::image);
    for (const kv::Row& row : SL_TRY(scan_all(t, range, kMaxImages))) {
      const std::string_view names = KeyReader(row.key).rest();
      const std::size_t end = names.find('\0');
      if (end == names.npos) return damaged("data set");
      const ImageRow image = SL_TRY(ImageRow::decode(row.value));
      SL_TRY(
          fill_image(t, names.substr(0, end), names.substr(end + 1), image, reply->add_images()));
    }
    return {};
  });
}

Status op_image_get(Context& context, const Call&, const pb::ImageRequest& request,
                    pb::Image* reply) {
  SL_TRY(check_names(request));
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const Found found = SL_TRY(find_image(t, request));
    return fill_image(t, request.name(), request.version(), found.row, reply);
  });
}

namespace {

enum class Deletion : std::uint8_t { closed, gone, pinned };

void put_states(kv::Transaction& t, const pb::ImageRequest& request, Found& found, ImageState image,
                BranchState branch) {
  found.row.state = image;
  found.head.state = branch;
  const std::string key = image_key(request.name(), request.version());
  t.expect(key, found.version);
  t.put(key, found.row.encode());
  t.expect(head_key(found.row.branch), found.head_version);
  t.put(head_key(found.row.branch), found.head.encode());
}

/// One step of two: first nobody can copy from it any more (a copy guards the head, and pins
/// without a trace that this could see), then, if nobody has, the name goes.
Result<Deletion> delete_step(kv::Transaction& t, const pb::ImageRequest& request, Found& found) {
  const std::int64_t pins = SL_TRY(t.total(image_pins_key(found.row.branch)));
  if (found.row.state == ImageState::published) {
    if (pins > 0) return Deletion::pinned;
    put_states(t, request, found, ImageState::deleting, BranchState::deleting);
    return Deletion::closed;
  }
  if (pins > 0) {
    put_states(t, request, found, ImageState::published, BranchState::frozen);
    return Deletion::pinned;
  }
  found.row.state = ImageState::deleting;
  const std::string key = image_key(request.name(), request.version());
  t.expect(key, found.version);
  t.del(key);
  t.put(image_key(deleting_name(found.row.branch, request.name()), request.version()),
        found.row.encode());
  SL_TRY(start_deleting(t, found.row.branch));
  return Deletion::gone;
}

/// Ends the session that publishes it if that is silent; busy if it is not.
Status take_from_writer(Context& context, const Call& call, const pb::ImageRequest& request) {
  SessionId writer;
  if (const Status done = context.read([&](kv::Transaction& t) -> Status {
        const Found found = SL_TRY(find_image(t, request));
        writer = found.row.state == ImageState::publishing ? found.head.writer : SessionId{};
        if (writer && !SL_TRY(t.get(session_key(writer)))) writer = {};
        return {};
      });
      !done.ok())
    return done;
  if (!writer || writer == call.session || writer == SessionId{request.session()}) return {};
  const bool over = SL_TRY(end_if_silent(context, writer));
  return over ? Status() : being_published(request);
}

}  // namespace

Status op_image_delete(Context& context, const Call& call, const pb::ImageRequest& request,
                       pb::Empty*) {
  SL_TRY(check_names(request));
  SL_TRY(take_from_writer(context, call, request));
  for (;;) {
    Deletion step = Deletion::closed;
    if (const Status done = kv::run(context.engine, kv::Durability::durable,
                                    [&](kv::Transaction& t) -> Status {
                                      Found found = SL_TRY(find_image(t, request));
                                      step = SL_TRY(delete_step(t, request, found));
                                      return {};
                                    });
        !done.ok())
      return done;
    if (step == Deletion::gone) return {};
    if (step == Deletion::pinned) {
      return {Errc::busy,
              thing_of(request) + " is still used by copies in volumes: delete those first"};
    }
  }
}

}  // namespace starlane::meta
