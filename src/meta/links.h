// What happens to an inode when a name of it is dropped or moved: link counts, further names (N),
// and the last unlink, which leaves the file to the trash (B, trash.h) or to whoever still has it
// open (U, O). Inside one transaction of the caller.
#pragma once
#include <string_view>

#include "meta/context.h"
#include "meta/nodes.h"

namespace starlane::meta {

/// An inode as the transaction read it.
struct Node {
  InodeId inode;
  InodeRow row;
  kv::Version version = kv::kAbsent;
};

/// A name: the place of an entry.
struct Name {
  InodeId parent;
  std::string_view name;
};

/// The inode that an entry names, from its row as read. A missing row is `corrupt`: the entry
/// dangles.
Result<Node> node_of(InodeId inode, const std::optional<kv::Row>& row);

/// Expects and writes `node`'s row.
void put_node(Change& change, const Node& node);

struct Drop {
  bool held = false;     // the caller has it open
  bool deleted = false;  // on purpose, not replaced by another file: it may go to the trash
};

/// Takes `name` from a file: one link less, or, after the last, the row of an unlinked file or of
/// one in the trash, or nothing any more. Writes the node.
Status drop_name(Change& change, Node& node, const Name& name, const Drop& drop);

/// Removes an empty directory with all that belongs to it, or puts it into the trash; not_empty.
/// Its entry is the caller's.
Status drop_directory(Change& change, Node& node, const Name& name, const Drop& drop);

/// A fresh file that has no name (O_TMPFILE): listed as unlinked and pinned by the caller's
/// session, so that it goes when it is closed or the session ends. Writes the node.
void put_unnamed(Change& change, const Node& node);

/// Such a file gets its first name: it is listed and pinned no more, and counts. The caller writes
/// node and entry. not_found: it had a name once, may have none (O_EXCL), or is being freed.
Status give_first_name(Change& change, Node& node, InodeId parent);

/// A name of the node becomes another one. The caller writes the node and the entries.
Status move_name(Change& change, Node& node, const Name& from, const Name& to);

/// Nobody holds the file open through a pin any more: it has a name.
Status drop_pins(Change& change, InodeId inode);

/// Deletes all extended attributes of an inode whose row says that it has some.
Status drop_xattrs(Change& change, InodeId inode, const InodeRow& row);

}  // namespace starlane::meta
