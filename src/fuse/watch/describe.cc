#include "fuse/watch/describe.h"

#include <algorithm>
#include <cctype>

namespace starlane::fuse {
namespace {

using client::AccessEntry;

std::string path_of(client::Node node, client::Vfs& vfs) {
  if (node == client::kMountRoot) return ".";
  std::string path = vfs.path_of(node);
  return path.empty() ? "inode:" + std::to_string(node.pack()) : path;
}

struct Describer {
  const Request& request;
  client::Vfs& vfs;
  AccessEntry& out;

  void here() { out.path = path_of(request.node, vfs); }
  std::string under(client::Node parent, std::string_view name) {
    const std::string path = path_of(parent, vfs);
    return path == "." ? std::string(name) : path + "/" + std::string(name);
  }
  void named(std::string_view name) { out.path = under(request.node, name); }

  template <typename Other>
  void operator()(const Other&) {
    here();
  }
  void operator()(const op::Lookup& o) { named(o.name); }
  void operator()(const op::MakeSymlink& o) {
    named(o.name);
    out.other = o.target;
  }
  void operator()(const op::MakeNode& o) {
    named(o.name);
    out.argument = o.mode;
    out.length = o.rdev;
  }
  void operator()(const op::MakeDirectory& o) {
    named(o.name);
    out.argument = o.mode;
  }
  void operator()(const op::Unlink& o) { named(o.name); }
  void operator()(const op::RemoveDirectory& o) { named(o.name); }
  void operator()(const op::Rename& o) {
    named(o.name);
    out.other = under(o.new_parent, o.new_name);
    out.argument = o.flags;
  }
  void operator()(const op::Link& o) {
    out.path = path_of(o.node, vfs);
    out.other = under(request.node, o.name);
  }
  void operator()(const op::Open& o) {
    here();
    out.argument = o.flags;
  }
  void operator()(const op::Create& o) {
    named(o.name);
    out.argument = o.flags;
    out.length = o.mode;
  }
  void operator()(const op::Read& o) {
    here();
    out.offset = o.offset;
    out.length = o.length;
  }
  void operator()(const op::Write& o) {
    here();
    out.offset = o.offset;
    out.length = o.bytes.size();
  }
  void operator()(const op::Fallocate& o) {
    here();
    out.offset = o.offset;
    out.length = o.length;
    out.argument = o.mode;
  }
  void operator()(const op::CopyRange& o) {
    here();
    fuse_copy_file_range_in in{};
    if (request.body.size() >= sizeof in)
      in = load_little<fuse_copy_file_range_in>(request.body.data());
    out.other = path_of(client::Node::unpack(in.nodeid_out), vfs);
    out.offset = o.range.source_offset;
    out.length = o.range.length;
    out.argument = o.range.offset;
  }
  void operator()(const op::Seek& o) {
    here();
    out.offset = o.offset;
    out.argument = static_cast<std::uint64_t>(o.whence);
  }
  void operator()(const op::ReadDirectory& o) {
    here();
    out.offset = o.cookie;
    out.length = o.length;
  }
  void operator()(const op::GetXattr& o) { attribute(o.name, o.room); }
  void operator()(const op::SetXattr& o) { attribute(o.name, o.value.size()); }
  void operator()(const op::RemoveXattr& o) { attribute(o.name, 0); }
  void operator()(const op::SetAttributes& o) {
    here();
    if (o.change.length) {
      out.operation = "truncate";
      out.length = *o.change.length;
    } else if (o.change.mode) {
      out.operation = "chmod";
      out.argument = *o.change.mode;
    } else if (o.change.uid || o.change.gid) {
      out.operation = "chown";
    } else {
      out.operation = "utimens";
    }
  }

 private:
  void attribute(std::string_view name, std::uint64_t length) {
    here();
    out.other = name;
    out.length = length;
  }
};

}  // namespace

AccessEntry describe(const Request& request, client::Vfs& vfs) {
  AccessEntry entry;
  entry.operation = name_of_opcode(request.opcode);
  std::ranges::transform(entry.operation, entry.operation.begin(),
                         [](char c) { return static_cast<char>(std::tolower(c)); });
  entry.pid = request.caller.pid;
  Request copy = request;
  const auto operation = decode_operation(copy);
  if (operation.ok()) std::visit(Describer{request, vfs, entry}, operation.value());
  return entry;
}

}  // namespace starlane::fuse
