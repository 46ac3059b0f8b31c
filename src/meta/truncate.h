// Shortening and lengthening a file. What one transaction cannot hold is cut off first, from the
// end and in bounded steps, each of which leaves a shorter, whole file.
#pragma once
#include "meta/context.h"
#include "meta/links.h"

namespace starlane::meta {

/// Sets the length inside the caller's change, with version and mtime, charging what that frees;
/// writes chunks, not the node. busy with *too_long set: more chunks go than one transaction may
/// change; call shorten_in_steps, then run again. Errors: file_too_large, is_directory, invalid
/// (neither file nor directory).
Status set_length(Change& change, Node& node, std::uint64_t length, bool* too_long);

/// Cuts a file to what one transaction can finish (at least `length`).
Status shorten_in_steps(Context& context, const Access& access, InodeId inode,
                        std::uint64_t length);

/// Adds to the file's own `bytes`.
void add_contents(Node& node, std::int64_t bytes);

/// The same, and to the usage of the branch if the file has a name.
void charge_contents(Change& change, Node& node, std::int64_t bytes);

/// One bounded step of freeing an unlinked file: its chunks become dead references, then its
/// attributes, then it goes itself with its row of U, whose key is `unlinked`. True: all is gone
/// (also when it was already). busy: a session holds the file (O). For housekeeping; runs its own
/// transaction.
Result<bool> free_unlinked_step(Context& context, const std::string& unlinked);

}  // namespace starlane::meta
