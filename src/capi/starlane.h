/* Starlane's C interface: a client of a running site inside your own process, without a mount. It
 * talks to `starlane up` over the site's sockets, with the site's key, and moves the bytes of reads
 * straight into your memory, many pieces at once.
 *
 * Paths are those of a mount: "/public/NAME/VERSION/…", "/volumes/NAME/…". Symbolic links are
 * followed; one whose target is absolute leads out of the site and answers -EXDEV.
 *
 * Errors: a negative errno, and a sentence about it from sl_last_error(). Each call lists its own;
 * every call may also answer
 *   -EINVAL     a null pointer, a struct whose `size` this library does not know, a bad path
 *   -ENOMEM     no memory
 *   -ECHILD     the client was made before a fork(), and this is the child: connect again there
 *   -ETIMEDOUT  sl_options.patience_ms passed while a server was away (volume and data-set calls
 * have no such limit) -EINTR      sl_interrupt() was called while the call waited -EIO        the
 * bytes cannot be had, or a written byte was lost: the sentence says which
 *
 * Threads: every call may be made by any thread, also on one object, but for the closing calls
 * (sl_disconnect, sl_close, sl_batch_free, sl_listing_close, sl_watch_close), which must be the
 * last on theirs. Calls block until done; they wait for a server that is away, as long as
 * sl_options.patience_ms says. No signal handler is installed and nothing is printed. The session
 * of a process that ends without sl_disconnect ends with it, if the server runs on the same host,
 * or else after 10 s without a heartbeat, for which others that want its volume wait.
 *
 * Rights: whoever can read the site's key (mode 0600) is trusted. Modes are stored and shown but,
 * with no kernel between, not enforced; published data sets and quotas are, by the server.
 *
 * What is seen: a file shows what was closed, or synced, anywhere before sl_open; names and
 * attributes may be a second old. Written bytes are safe as on a mount: after sl_close they outlive
 * every process of the site, after sl_fsync the power. Locks, extended attributes and mappings are
 * the mount's.
 *
 * Stability: SL_ABI grows with each addition; what is there keeps its meaning. Structs begin with
 * `size`, which the caller sets to sizeof the struct; fields are only ever added at the end. */
#ifndef STARLANE_H
#define STARLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_ABI 1
#if defined(__GNUC__)
#define SL_API __attribute__((visibility("default")))
#else
#define SL_API
#endif

typedef struct sl_client sl_client;   /* a connection to a site, with a session of its own */
typedef struct sl_file sl_file;       /* an open file */
typedef struct sl_batch sl_batch;     /* reads and writes under way */
typedef struct sl_listing sl_listing; /* a pass over a directory */
typedef struct sl_watch sl_watch;     /* who waits for a path to change */

/* ---- The library ---- */

/* SL_ABI of the library that is loaded: at least that of the header you compiled with. */
SL_API uint32_t sl_abi(void);
/* As "0.1.0". Lives for ever. */
SL_API const char* sl_version(void);
/* About the calling thread's last failure: one sentence, valid until its next failure; "" if there
 * was none. */
SL_API const char* sl_last_error(void);

/* ---- Connecting ---- */

typedef struct sl_options {
  uint32_t size;
  uint32_t threads;     /* that serve batches; 0: 8; at most 64 */
  uint64_t cache_bytes; /* of small and partly read blocks; 0: 64 MiB */
  uint64_t dirty_bytes; /* of written bytes not stored yet, beyond which writers wait; 0: 256 MiB */
  uint64_t patience_ms; /* a call gives up after so long while a server is away; 0: never */
  const char* purpose;  /* shown by `starlane status`; null: "C interface" */
} sl_options;

/* directory: what `starlane up --dir` was given. options: null for the defaults. *client is set on
 * success only.
 * -ENOENT: no Starlane directory. -EACCES: its key cannot be read. -ENOTCONN: nobody serves it now
 * (`starlane up` does). -EPROTO: the site speaks another version. */
SL_API int sl_connect(const char* directory, const sl_options* options, sl_client** client);
/* Commits what was written and ends the session. Null is fine. In a child of fork() it frees
 * nothing and answers 0. -EBUSY: files, batches, listings or watches are open; the client stays.
 * Any other failure: bytes written and never synced were lost; the client is gone. */
SL_API int sl_disconnect(sl_client* client);
/* Ends the waits of all calls that are under way on this client, with -EINTR. For another thread;
 * not for a signal handler. */
SL_API int sl_interrupt(sl_client* client);

/* ---- Files ---- */

typedef struct sl_stat {
  uint32_t size;
  uint32_t mode; /* type and permissions, as st_mode */
  uint64_t ino;  /* as st_ino on a mount */
  uint64_t length_bytes;
  uint64_t blocks; /* of 512 bytes */
  uint32_t nlink, uid, gid, reserved;
  int64_t mtime_seconds, ctime_seconds;
  uint32_t mtime_nanoseconds, ctime_nanoseconds;
} sl_stat;

/* flags: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND. mode: of a new
 * file; no umask is applied. -ENOENT, -EEXIST, -EISDIR, -ENOTDIR, -EROFS (a published data set),
 * -ELOOP, -EXDEV, -ENAMETOOLONG, -EDQUOT, -EPERM (marked immutable). */
SL_API int sl_open(sl_client* client, const char* path, int flags, uint32_t mode, sl_file** file);
/* Commits what was written through it, tells the failure if that did not succeed, and frees it
 * either way. Null is fine. -EBUSY: a batch still uses it; it stays. -EDQUOT, -ENOSPC. */
SL_API int sl_close(sl_file* file);

/* How many bytes; less than asked at the end of the file only. From 128 KiB on straight into `to`,
 * past the cache. -EBADF: not open for reading. */
SL_API int64_t sl_pread(sl_file* file, void* to, uint64_t length, uint64_t offset);
/* All of them, or an error. With O_APPEND the offset is ignored. -EBADF: not open for writing.
 * -EFBIG, -EDQUOT, -ENOSPC. */
SL_API int64_t sl_pwrite(sl_file* file, const void* from, uint64_t length, uint64_t offset);
/* Everything written to the file so far survives the loss of power. -EDQUOT, -ENOSPC. */
SL_API int sl_fsync(sl_file* file);
/* -EBADF: not open for writing. -EFBIG, -EDQUOT. */
SL_API int sl_truncate(sl_file* file, uint64_t length);
SL_API int sl_fstat(sl_file* file, sl_stat* stat);

/* ---- Names ---- */

/* -ENOENT, -ENOTDIR, -ELOOP, -EXDEV. */
SL_API int sl_stat_path(sl_client* client, const char* path, sl_stat* stat);
/* -EEXIST, -ENOENT, -ENOTDIR, -EROFS, -EDQUOT, -EPERM (outside a volume). */
SL_API int sl_mkdir(sl_client* client, const char* path, uint32_t mode);
/* -ENOENT, -ENOTDIR, -ENOTEMPTY, -EROFS, -EPERM. */
SL_API int sl_rmdir(sl_client* client, const char* path);
/* -ENOENT, -EISDIR, -EROFS, -EPERM. */
SL_API int sl_unlink(sl_client* client, const char* path);
/* Replaces what has the new name, at once and on every mount. -ENOENT, -EXDEV (another volume),
 * -EISDIR, -ENOTDIR, -ENOTEMPTY, -EROFS, -EPERM. */
SL_API int sl_rename(sl_client* client, const char* from, const char* to);
/* What was done to names in the directory survives the loss of power. -ENOENT, -ENOTDIR. */
SL_API int sl_fsync_directory(sl_client* client, const char* path);

typedef struct sl_entry {
  uint32_t size;
  uint32_t reserved;
  sl_stat stat;
  char name[256];
} sl_entry;

/* -ENOENT, -ENOTDIR. */
SL_API int sl_listing_open(sl_client* client, const char* path, sl_listing** listing);
/* 1: *entry is the next one, with attributes; 0: there are no more. "." and ".." are left out; no
 * order is promised. stat.size is set by the library. */
SL_API int sl_listing_next(sl_listing* listing, sl_entry* entry);
SL_API int sl_listing_close(sl_listing* listing);

/* ---- Batches: many reads and writes in flight ---- */

enum { SL_READ = 0, SL_WRITE = 1 };
/* Belongs to the library from sl_batch_submit until the batch is done; the memory at `memory` too.
 */
typedef struct sl_io {
  uint32_t size;
  uint32_t kind; /* SL_READ, SL_WRITE */
  sl_file* file;
  void* memory;
  uint64_t length_bytes, offset;
  int64_t result; /* out: bytes, as sl_pread and sl_pwrite, or a negative errno; -ECANCELED */
} sl_io;

SL_API int sl_batch_new(sl_client* client, sl_batch** batch);
/* Starts all of them and returns at once. Pieces of at most 4 MiB are fetched in the order given,
 * as many at once as the client has threads, together with other batches. ios: an array with a
 * stride of ios[0].size. May be called again before the batch is done. Reads and writes of one
 * range in one batch have no order. -EBADF: a file is not open for that. */
SL_API int sl_batch_submit(sl_batch* batch, sl_io* ios, size_t count);
/* A descriptor (eventfd) that is readable while nothing is under way, for poll(2); owned by the
 * batch: neither read nor close it. */
SL_API int sl_batch_fd(sl_batch* batch);
/* Until all that was submitted is done: 0, or the first failure of any of it since the last wait.
 * timeout_ms: -1: for ever. -EAGAIN: not done in that time. */
SL_API int sl_batch_wait(sl_batch* batch, int timeout_ms);
/* How many bytes have landed or were written since the batch was made. */
SL_API uint64_t sl_batch_progress_bytes(sl_batch* batch);
/* What has not begun never does; what waits for a server ends. They end with -ECANCELED. Then wait.
 */
SL_API int sl_batch_cancel(sl_batch* batch);
/* Cancels and waits. Null is fine. */
SL_API int sl_batch_free(sl_batch* batch);

/* Memory that many reads will land in: asks for huge pages, brings all of it in, with several
 * threads, and locks it as far as the limits of the process allow (a lock that is refused is no
 * error). */
SL_API int sl_register(sl_client* client, void* memory, uint64_t length);
/* Unlocks it. */
SL_API int sl_unregister(sl_client* client, void* memory, uint64_t length);

/* ---- Watching ---- */

enum { SL_APPEARED = 1, SL_CHANGED = 2, SL_GONE = 3 };
typedef struct sl_change {
  uint32_t size;
  uint32_t kind;
  sl_stat stat; /* as it is now; all zero when gone */
} sl_change;

/* path need not be there yet. The library looks at its attributes every interval_ms (at least 10):
 * a change is another inode, length, mtime or ctime; changes between two looks are one. */
SL_API int sl_watch_open(sl_client* client, const char* path, uint32_t interval_ms,
                         sl_watch** watch);
/* Until the path is not as it was at the last report, or at sl_watch_open. timeout_ms: -1: for
 * ever. -EAGAIN: nothing changed in that time. */
SL_API int sl_watch_next(sl_watch* watch, int timeout_ms, sl_change* change);
SL_API int sl_watch_close(sl_watch* watch);

/* ---- Volumes and data sets ---- */

typedef struct sl_volume {
  uint32_t size;
  uint32_t sessions; /* that have it attached now */
  uint64_t live_bytes, inodes;
  uint64_t quota_bytes, quota_inodes; /* 0: none */
  char name[64];
  uint32_t deleting; /* 1: it was deleted, and its space is returning */
  uint32_t reserved;
} sl_volume;

/* name: 1 to 63 of a-z 0-9 . _ -. -EEXIST. */
SL_API int sl_volume_create(sl_client* client, const char* name, uint64_t quota_bytes,
                            uint64_t quota_inodes);
/* -ENOENT. -EBUSY: somebody has it attached; force cuts them off. */
SL_API int sl_volume_delete(sl_client* client, const char* name, int force);
/* Fills at most `room` of an array with a stride of volumes[0].size; *count is how many there are.
 * volumes may be null when room is 0. */
SL_API int sl_volume_list(sl_client* client, sl_volume* volumes, size_t room, size_t* count);

typedef struct sl_dataset {
  uint32_t size;
  uint32_t frozen; /* 0: it is being published */
  uint64_t files, directories, bytes;
  int64_t created_seconds;
  char name[64], version[64];
  char digest[128]; /* of all names and bytes */
} sl_dataset;

/* As sl_volume_list. Files: sl_listing_open("/public/NAME/VERSION"). */
SL_API int sl_dataset_list(sl_client* client, sl_dataset* datasets, size_t room, size_t* count);

#ifdef __cplusplus
}
#endif
#endif
