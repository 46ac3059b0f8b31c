// The namespace as its callers see it, in this process (meta::Server) or over the wire
// (rpc::MetaStub): one method a call, listed once in SL_META_METHODS, from which the interface, the
// stub and the dispatcher are made. Any thread; every call blocks until done. A failure is a
// Status; `reply` is then unspecified.
#pragma once
#include "common/status.h"
#include "proto/call.h"
#include "proto/meta.pb.h"

namespace starlane {

// X(number, method, Request, Reply). Numbers are the wire's: append only.
#define SL_META_METHODS(X)                                                  \
  X(1, open_session, OpenSessionRequest, OpenSessionReply)                  \
  X(2, heartbeat, HeartbeatRequest, HeartbeatReply)                         \
  X(3, close_session, SessionRequest, Empty)                                \
  X(4, list_sessions, Empty, ListSessionsReply)                             \
  X(5, volume_create, VolumeRequest, Volume)                                \
  X(6, volume_list, Empty, ListVolumesReply)                                \
  X(7, volume_get, VolumeRequest, Volume)                                   \
  X(8, volume_delete, VolumeRequest, Empty)                                 \
  X(9, image_begin, ImageRequest, Image) /* resumes one of that name */     \
  X(10, image_freeze, ImageRequest, Image)                                  \
  X(11, image_list, Empty, ListImagesReply)                                 \
  X(12, image_get, ImageRequest, Image)                                     \
  X(13, image_delete, ImageRequest, Empty)                                  \
  X(14, attach, AttachRequest, AttachReply) /* busy: a lease is recalled */ \
  X(15, detach, BranchRequest, Empty)                                       \
  X(16, release_lease, BranchRequest, Empty)                                \
  X(17, cluster_map, Empty, ClusterMap)                                     \
  X(18, register_targets, RegisterTargetsRequest, ClusterMap)               \
  X(20, lookup, LookupRequest, NewEntry)                                    \
  X(21, get_attributes, NodeRequest, Attributes)                            \
  X(22, set_attributes, SetAttributesRequest, Attributes)                   \
  X(23, create, CreateRequest, NewEntry) /* any type but directories */     \
  X(24, make_directory, CreateRequest, NewEntry)                            \
  X(25, link, LinkRequest, NewEntry)                                        \
  X(26, unlink, UnlinkRequest, UnlinkReply)                                 \
  X(27, remove_directory, UnlinkRequest, UnlinkReply)                       \
  X(28, rename, RenameRequest, RenameReply)                                 \
  X(29, open, OpenRequest, OpenReply)                                       \
  X(30, read_directory, ReadDirectoryRequest, ReadDirectoryReply)           \
  X(31, get_xattr, XattrRequest, XattrReply)                                \
  X(32, list_xattrs, NodeRequest, XattrReply)                               \
  X(33, set_xattr, XattrRequest, Empty)                                     \
  X(34, remove_xattr, XattrRequest, Empty)                                  \
  X(35, stat_fs, NodeRequest, StatFsReply)                                  \
  X(36, read_link, NodeRequest, XattrReply) /* target in `value` */         \
  X(40, file_map, FileMapRequest, FileMapReply)                             \
  X(41, reserve_slices, ReserveSlicesRequest, ReserveSlicesReply)           \
  X(42, commit, CommitRequest, CommitReply)                                 \
  X(43, fallocate, FallocateRequest, Attributes)                            \
  X(44, copy_range, CopyRangeRequest, CopyRangeReply)                       \
  X(45, flush, FlushRequest, Empty)   /* all that returned: durable */      \
  X(50, lock, LockRequest, LockReply) /* would_block, deadlock, no_locks */ \
  X(51, test_lock, LockRequest, TestLockReply)                              \
  X(52, stop_waiting, StopWaitingRequest, Empty)                            \
  X(53, await_locks, SessionRequest, Empty) /* sleeps: see MetaStub */      \
  X(60, dead_slices, KeeperRequest, DeadSlicesReply)                        \
  X(61, settle_dead, SettleRequest, Empty)                                  \
  X(62, long_chunks, KeeperRequest, LongChunksReply)                        \
  X(63, replace_chunk, ReplaceChunkRequest, Attributes)                     \
  X(64, housekeeping, KeeperRequest, HousekeepingReply)                     \
  X(65, fsck_references, FsckRequest, FsckReply)                            \
  X(70, trash_list, TrashListRequest, TrashListReply)                       \
  X(71, trash_restore, TrashRestoreRequest, NewEntry)                       \
  X(72, trash_empty, TrashEmptyRequest, TrashEmptyReply)                    \
  X(73, volume_set, VolumeSettings, Volume)                                 \
  X(74, escrow, EscrowRequest, EscrowReply)                                 \
  X(75, scrub_states, Empty, ScrubStates)                                   \
  X(76, note_scrub, ScrubState, Empty)

class MetaService {
 public:
  virtual ~MetaService() = default;
#define SL_DECLARE(number, method, Request, Reply) \
  virtual Status method(const Call& call, const pb::Request& request, pb::Reply* reply) = 0;
  SL_META_METHODS(SL_DECLARE)
#undef SL_DECLARE
};

}  // namespace starlane
