/* A program in C11 that uses all of the C interface on a running site, and checks what comes back.
 * Usage: capi_conversation DIRECTORY (all | fork | hold FILE | wait PATIENCE_MS)
 * Prints "ok" at the end. `hold` opens FILE, says "ready", reads a line and reads the file; `wait`
 * the same with the attributes of a name, under a limit of time, and prints the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/starlane.h"

#define MIB ((size_t)1 << 20)

static void fail_at(int line, const char* what, long long got, long long wanted) {
  fprintf(stderr, "line %d: %s is %lld, not %lld; last error: %s\n", line, what, got, wanted,
          sl_last_error());
  exit(1);
}
#define SAME(expression, wanted)                                                   \
  do {                                                                             \
    const long long got_ = (long long)(expression), wanted_ = (long long)(wanted); \
    if (got_ != wanted_) fail_at(__LINE__, #expression, got_, wanted_);            \
  } while (0)
#define YES(condition) SAME(!!(condition), 1)

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

static unsigned char* pattern(size_t length) {
  unsigned char* bytes = malloc(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = byte_at(i);
  return bytes;
}

static sl_client* connected(const char* directory, uint64_t patience_ms) {
  sl_options options = {.size = sizeof options, .purpose = "conversation"};
  options.patience_ms = patience_ms;
  sl_client* client = NULL;
  SAME(sl_connect(directory, &options, &client), 0);
  return client;
}

static void volumes(sl_client* client) {
  SAME(sl_volume_create(client, "talk", 64 * MIB, 0), 0);
  SAME(sl_volume_create(client, "talk", 0, 0), -EEXIST);
  YES(strlen(sl_last_error()) > 5);
  SAME(sl_volume_create(client, "No Such Name!", 0, 0), -EINVAL);
  sl_volume all[8];
  memset(all, 0, sizeof all);
  all[0].size = sizeof all[0];
  size_t count = 0;
  SAME(sl_volume_list(client, all, 8, &count), 0);
  int found = 0;
  for (size_t i = 0; i < count; ++i)
    if (strcmp(all[i].name, "talk") == 0) found = all[i].quota_bytes == 64 * MIB;
  YES(found);
  SAME(sl_volume_list(client, NULL, 0, &count), 0);
  SAME(sl_dataset_list(client, NULL, 0, &count), 0);
  SAME(count, 1);
  sl_dataset set = {.size = sizeof set};
  SAME(sl_dataset_list(client, &set, 1, &count), 0);
  SAME(strcmp(set.name, "books"), 0);
  SAME(set.frozen, 1);
  SAME(set.files, 1);
}

static void files(sl_client* client) {
  const size_t length = 9 * MIB + 12345;
  unsigned char* bytes = pattern(length);
  unsigned char* back = calloc(1, length);
  sl_file* file = NULL;
  SAME(sl_open(client, "/volumes/talk/none", O_RDONLY, 0, &file), -ENOENT);
  SAME(sl_open(client, "volumes/talk/none", O_RDONLY, 0, &file), -EINVAL);
  SAME(sl_open(client, "/volumes/talk/none", O_RDONLY | O_DIRECTORY, 0, &file), -EINVAL);
  SAME(sl_open(client, "/volumes/talk", O_RDONLY, 0, &file), -EISDIR);
  SAME(sl_mkdir(client, "/volumes/talk/d", 0750), 0);
  SAME(sl_mkdir(client, "/volumes/talk/d", 0750), -EEXIST);
  SAME(sl_open(client, "/volumes/talk/d/file", O_RDWR | O_CREAT | O_EXCL, 0640, &file), 0);
  SAME(sl_pwrite(file, bytes, length, 0), length);
  SAME(sl_pread(file, back, length, 0), length); /* before anything is flushed */
  SAME(memcmp(bytes, back, length), 0);
  SAME(sl_fsync(file), 0);
  memset(back, 0, length);
  SAME(sl_pread(file, back, length + 7, 0), length); /* stops at the end */
  SAME(memcmp(bytes, back, length), 0);
  SAME(sl_pread(file, back, 100, length - 10), 10);
  SAME(memcmp(bytes + length - 10, back, 10), 0);
  SAME(sl_pread(file, back, 100, length), 0);
  SAME(sl_pread(file, back, (uint64_t)1 << 63, 1), -EINVAL);
  sl_stat stat = {.size = sizeof stat};
  SAME(sl_fstat(file, &stat), 0);
  SAME(stat.length_bytes, length);
  SAME(stat.mode, S_IFREG | 0640);
  SAME(sl_truncate(file, 1000), 0);
  SAME(sl_fstat(file, &stat), 0);
  SAME(stat.length_bytes, 1000);
  stat.size = 3;
  SAME(sl_fstat(file, &stat), -EINVAL);
  SAME(sl_disconnect(client), -EBUSY);
  SAME(sl_close(file), 0);
  SAME(sl_open(client, "/volumes/talk/d/file", O_WRONLY | O_APPEND, 0, &file), 0);
  SAME(sl_pwrite(file, bytes + 1000, 24, 0), 24);
  SAME(sl_pread(file, back, 10, 0), -EBADF);
  SAME(sl_close(file), 0);
  SAME(sl_open(client, "/volumes/talk/d/file", O_RDONLY, 0, &file), 0);
  SAME(sl_pread(file, back, 2000, 0), 1024);
  SAME(memcmp(bytes, back, 1024), 0);
  SAME(sl_pwrite(file, bytes, 1, 0), -EBADF);
  SAME(sl_truncate(file, 0), -EBADF);
  SAME(sl_close(file), 0);
  SAME(sl_open(client, "/public/books/v1/page", O_WRONLY, 0, &file), -EROFS);
  free(bytes);
  free(back);
}

static void names(sl_client* client) {
  sl_stat stat = {.size = sizeof stat};
  SAME(sl_stat_path(client, "/volumes/talk/d/../d//file", &stat), 0);
  SAME(stat.length_bytes, 1024);
  SAME(sl_rename(client, "/volumes/talk/d/file", "/volumes/talk/moved"), 0);
  SAME(sl_stat_path(client, "/volumes/talk/d/file", &stat), -ENOENT);
  SAME(sl_rename(client, "/volumes/talk/moved", "/public/moved"), -EXDEV);
  SAME(sl_mkdir(client, "/public/x", 0700), -EPERM);
  SAME(sl_fsync_directory(client, "/volumes/talk"), 0);
  SAME(sl_fsync_directory(client, "/volumes/talk/moved"), -ENOTDIR);
  SAME(sl_unlink(client, "/volumes/talk/d"), -EISDIR);
  SAME(sl_rmdir(client, "/volumes/talk/moved"), -ENOTDIR);
  SAME(sl_stat_path(client, "/volumes/talk/moved/x", &stat), -ENOTDIR);
  char path[64];
  for (int i = 0; i < 1500; ++i) {
    snprintf(path, sizeof path, "/volumes/talk/d/n%04d", i);
    SAME(sl_mkdir(client, path, 0755), 0);
  }
  SAME(sl_rmdir(client, "/volumes/talk/d"), -ENOTEMPTY);
  sl_listing* listing = NULL;
  SAME(sl_listing_open(client, "/volumes/talk/moved", &listing), -ENOTDIR);
  SAME(sl_listing_open(client, "/volumes/talk/d", &listing), 0);
  static char seen[1500];
  sl_entry entry = {.size = sizeof entry};
  int more = 0, count = 0;
  while ((more = sl_listing_next(listing, &entry)) == 1) {
    const int i = atoi(entry.name + 1);
    YES(i >= 0 && i < 1500 && !seen[i]);
    seen[i] = 1;
    SAME(entry.stat.mode, S_IFDIR | 0755);
    ++count;
  }
  SAME(more, 0);
  SAME(count, 1500);
  SAME(sl_listing_close(listing), 0);
  for (int i = 0; i < 1500; ++i) {
    snprintf(path, sizeof path, "/volumes/talk/d/n%04d", i);
    SAME(sl_rmdir(client, path), 0);
  }
  SAME(sl_rmdir(client, "/volumes/talk/d"), 0);
  SAME(sl_unlink(client, "/volumes/talk/moved"), 0);
}

enum { PARTS = 7 };
static void batches(sl_client* client) {
  const size_t length = 21 * MIB + 77;
  unsigned char* bytes = pattern(length);
  unsigned char* back = aligned_alloc(4096, 22 * MIB);
  SAME(sl_register(client, back, 22 * MIB), 0);
  sl_file* file = NULL;
  SAME(sl_open(client, "/volumes/talk/batch", O_RDWR | O_CREAT, 0644, &file), 0);
  sl_batch* batch = NULL;
  SAME(sl_batch_new(client, &batch), 0);
  SAME(sl_batch_wait(batch, -1), 0); /* nothing is under way */
  sl_io ios[PARTS + 1];
  memset(ios, 0, sizeof ios);
  for (size_t i = 0; i < PARTS; ++i) {
    const size_t at = length / PARTS * i;
    ios[i] = (sl_io){.size = sizeof ios[0],
                     .kind = SL_WRITE,
                     .file = file,
                     .memory = bytes + at,
                     .length_bytes = i + 1 == PARTS ? length - at : length / PARTS,
                     .offset = at};
  }
  SAME(sl_batch_submit(batch, ios, PARTS), 0);
  SAME(sl_close(file) == -EBUSY || sl_batch_wait(batch, 0) == 0, 1);
  SAME(sl_batch_wait(batch, -1), 0);
  SAME(sl_batch_progress_bytes(batch), length);
  SAME(sl_fsync(file), 0);

  for (size_t i = 0; i < PARTS; ++i) {
    ios[i].kind = SL_READ;
    ios[i].memory = back + ios[i].offset;
  }
  ios[PARTS] = (sl_io){.size = sizeof ios[0],
                       .file = file,
                       .memory = back + length,
                       .length_bytes = 50,
                       .offset = length - 20}; /* the file ends in it */
  SAME(sl_batch_submit(batch, ios, PARTS + 1), 0);
  struct pollfd poller = {.fd = sl_batch_fd(batch), .events = POLLIN};
  SAME(poll(&poller, 1, 60000), 1);
  SAME(sl_batch_wait(batch, 0), 0);
  SAME(memcmp(bytes, back, length), 0);
  SAME(ios[0].result, length / PARTS);
  SAME(ios[PARTS].result, 20);
  SAME(memcmp(bytes + length - 20, back + length, 20), 0);

  ios[0].file = NULL;
  SAME(sl_batch_submit(batch, ios, 1), -EINVAL);
  ios[0].file = file;
  ios[0].kind = 9;
  SAME(sl_batch_submit(batch, ios, 1), -EINVAL);
  ios[0].kind = SL_READ;
  SAME(sl_batch_submit(batch, ios, PARTS), 0);
  SAME(sl_batch_cancel(batch), 0);
  SAME(sl_batch_wait(batch, -1), 0);
  for (size_t i = 0; i < PARTS; ++i)
    YES(ios[i].result == -ECANCELED || ios[i].result == (int64_t)ios[i].length_bytes);
  SAME(sl_batch_submit(batch, ios, PARTS), 0); /* and goes on afterwards */
  SAME(sl_batch_free(batch), 0);
  SAME(sl_unregister(client, back, 22 * MIB), 0);
  SAME(sl_close(file), 0);
  free(bytes);
  free(back);
}

static void* change_later(void* argument) {
  sl_client* client = argument;
  usleep(100000);
  sl_file* file = NULL;
  SAME(sl_open(client, "/volumes/talk/seen", O_WRONLY | O_CREAT, 0644, &file), 0);
  SAME(sl_close(file), 0);
  return NULL;
}

static void* interrupt_later(void* argument) {
  usleep(100000);
  SAME(sl_interrupt(argument), 0);
  return NULL;
}

static void watches(sl_client* client) {
  sl_watch* watch = NULL;
  SAME(sl_watch_open(client, "/volumes/talk/seen", 20, &watch), 0);
  sl_change change = {.size = sizeof change};
  SAME(sl_watch_next(watch, 50, &change), -EAGAIN);
  pthread_t thread;
  pthread_create(&thread, NULL, change_later, client);
  SAME(sl_watch_next(watch, 60000, &change), 0);
  SAME(change.kind, SL_APPEARED);
  pthread_join(thread, NULL);
  sl_file* file = NULL;
  SAME(sl_open(client, "/volumes/talk/seen", O_WRONLY, 0, &file), 0);
  SAME(sl_pwrite(file, "12345", 5, 0), 5);
  SAME(sl_close(file), 0);
  SAME(sl_watch_next(watch, 60000, &change), 0);
  SAME(change.kind, SL_CHANGED);
  SAME(change.stat.length_bytes, 5);
  SAME(sl_unlink(client, "/volumes/talk/seen"), 0);
  SAME(sl_watch_next(watch, 60000, &change), 0);
  SAME(change.kind, SL_GONE);
  pthread_create(&thread, NULL, interrupt_later, client);
  SAME(sl_watch_next(watch, -1, &change), -EINTR);
  pthread_join(thread, NULL);
  SAME(sl_watch_close(watch), 0);
}

static void everything(const char* directory) {
  SAME(sl_abi(), SL_ABI);
  YES(strlen(sl_version()) > 0);
  SAME(strlen(sl_last_error()), 0);
  sl_client* client = NULL;
  SAME(sl_connect("/nowhere/at/all", NULL, &client), -ENOENT);
  SAME(sl_connect(NULL, NULL, &client), -EINVAL);
  sl_options small = {.size = 4};
  SAME(sl_connect(directory, &small, &client), -EINVAL);
  SAME(sl_mkdir(NULL, "/x", 0), -EINVAL);
  SAME(sl_pread(NULL, NULL, 0, 0), -EINVAL);
  client = connected(directory, 0);
  volumes(client);
  files(client);
  names(client);
  batches(client);
  watches(client);
  SAME(sl_volume_delete(client, "talk", 1), 0);
  SAME(sl_volume_delete(client, "none", 0), -ENOENT);
  SAME(sl_disconnect(client), 0);
  SAME(sl_disconnect(NULL), 0);
}

/* A child gets an error from what its parent made, at once, and may connect for itself. */
static void forked(const char* directory) {
  sl_client* client = connected(directory, 0);
  sl_file* file = NULL;
  SAME(sl_open(client, "/public/books/v1/page", O_RDONLY, 0, &file), 0);
  sl_batch* batch = NULL;
  SAME(sl_batch_new(client, &batch), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    sl_stat stat = {.size = sizeof stat};
    SAME(sl_pread(file, &byte, 1, 0), -ECHILD);
    YES(strstr(sl_last_error(), "fork") != NULL);
    SAME(sl_stat_path(client, "/public", &stat), -ECHILD);
    SAME(sl_batch_wait(batch, -1), -ECHILD);
    SAME(sl_batch_free(batch), 0);
    SAME(sl_close(file), 0);
    SAME(sl_disconnect(client), 0);
    sl_client* own = connected(directory, 0);
    SAME(sl_open(own, "/public/books/v1/page", O_RDONLY, 0, &file), 0);
    SAME(sl_pread(file, &byte, 1, 0), 1);
    SAME(sl_close(file), 0);
    SAME(sl_disconnect(own), 0);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  SAME(status, 0);
  char byte = 0;
  SAME(sl_pread(file, &byte, 1, 0), 1); /* the parent's goes on */
  SAME(sl_batch_free(batch), 0);
  SAME(sl_close(file), 0);
  SAME(sl_disconnect(client), 0);
}

static void say_ready(void) {
  printf("ready\n");
  fflush(stdout);
  char line[16];
  YES(fgets(line, sizeof line, stdin) != NULL);
}

/* Reads while the site is killed and started again around it. */
static void hold(const char* directory, const char* path) {
  sl_client* client = connected(directory, 0);
  sl_file* file = NULL;
  SAME(sl_open(client, path, O_RDONLY, 0, &file), 0);
  sl_stat stat = {.size = sizeof stat};
  SAME(sl_fstat(file, &stat), 0);
  unsigned char* back = malloc(stat.length_bytes);
  say_ready();
  SAME(sl_pread(file, back, stat.length_bytes, 0), stat.length_bytes);
  for (size_t i = 0; i < stat.length_bytes; ++i) SAME(back[i], byte_at(i));
  SAME(sl_close(file), 0);
  SAME(sl_disconnect(client), 0);
  free(back);
}

static void wait_limited(const char* directory, const char* patience_ms) {
  sl_client* client = connected(directory, strtoull(patience_ms, NULL, 10));
  say_ready();
  sl_stat stat = {.size = sizeof stat};
  SAME(sl_stat_path(client, "/volumes/work/never-asked-for", &stat), -ETIMEDOUT);
  printf("%s\n", sl_last_error());
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[2], "all") == 0)
    everything(argv[1]);
  else if (argc == 3 && strcmp(argv[2], "fork") == 0)
    forked(argv[1]);
  else if (argc == 4 && strcmp(argv[2], "hold") == 0)
    hold(argv[1], argv[3]);
  else if (argc == 4 && strcmp(argv[2], "wait") == 0)
    wait_limited(argv[1], argv[3]);
  else
    return 2;
  printf("ok\n");
  return 0;
}
