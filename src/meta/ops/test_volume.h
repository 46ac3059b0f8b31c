// For tests: a volume over an engine of memory, and each operation as one short call. One thread,
// unless said otherwise; several may share one engine and branch, each as its own session.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/manual_clock.h"
#include "kv/engine.h"
#include "meta/ops/ops.h"

namespace starlane::meta {

/// Puts the head and the root of a branch, and of `session` (if any) the rows that let it in.
void make_branch(kv::Engine& engine, BranchId branch, const HeadRow& head = {});
void let_in(kv::Engine& engine, BranchId branch, SessionId session, std::uint64_t epoch,
            std::uint8_t flags = 0);
/// What `change` does to the head.
void edit_head(kv::Engine& engine, BranchId branch, const std::function<void(HeadRow&)>& change);

class TestVolume {
 public:
  explicit TestVolume(kv::Engine& engine, BranchId branch = BranchId{7}, Options options = {});

  Context& context() { return context_; }
  ManualClock& clock() { return clock_; }
  kv::Engine& engine() { return context_.engine; }
  BranchId branch() const { return BranchId{on.branch()}; }

  Result<pb::Attributes> lookup(std::uint64_t parent, const std::string& name);
  Result<pb::Attributes> attributes(std::uint64_t inode);
  Result<pb::Attributes> set(const pb::SetAttributesRequest& request);
  Result<pb::Attributes> truncate(std::uint64_t inode, std::uint64_t length);
  Result<pb::Attributes> create(std::uint64_t parent, const std::string& name,
                                std::uint32_t mode = 0100644);
  Result<pb::Attributes> mkdir(std::uint64_t parent, const std::string& name,
                               std::uint32_t mode = 0755);
  Result<pb::Attributes> symlink(std::uint64_t parent, const std::string& name,
                                 const std::string& target);
  Result<pb::Attributes> link(std::uint64_t inode, std::uint64_t parent, const std::string& name);
  Result<pb::UnlinkReply> unlink(std::uint64_t parent, const std::string& name, bool held = false);
  Result<pb::UnlinkReply> rmdir(std::uint64_t parent, const std::string& name);
  Result<pb::RenameReply> rename(std::uint64_t parent, const std::string& name,
                                 std::uint64_t new_parent, const std::string& new_name,
                                 std::uint32_t flags = 0);
  Result<std::vector<std::string>> list(std::uint64_t inode);

  Result<pb::ReserveSlicesReply> reserve(std::uint32_t count);
  /// Reserves a slice of `length` and commits it at `offset`, cut at chunks as a client does.
  Result<pb::CommitReply> write(std::uint64_t inode, std::uint64_t offset, std::uint32_t length);
  Result<pb::CommitReply> write_inline(std::uint64_t inode, std::uint64_t offset,
                                       const std::string& content);
  Result<pb::CommitReply> commit(const pb::CommitRequest& request);
  Result<pb::FileMapReply> map(std::uint64_t inode, std::uint32_t first = 0,
                               std::uint32_t chunks = 256);
  Result<pb::Attributes> fallocate(std::uint64_t inode, std::uint32_t mode, std::uint64_t offset,
                                   std::uint64_t length);
  Result<pb::CopyRangeReply> copy(std::uint64_t source, std::uint64_t from, std::uint64_t inode,
                                  std::uint64_t to, std::uint64_t length,
                                  BranchId source_branch = {});
  /// What a reader of [offset, offset + length) sees: "slice@offset" for each byte that is not a
  /// zero, by block of one byte; the model of contents.
  std::vector<std::uint64_t> read(std::uint64_t inode, std::uint64_t offset, std::uint32_t length);

  std::int64_t total(What what);
  std::int64_t count_of(std::uint64_t slice);
  std::vector<kv::Row> rows(Table table);

  pb::On on;
  Call call;

 private:
  template <typename Reply, typename Request>
  Result<Reply> run(Status (*op)(Context&, const Call&, const Request&, Reply*), Request request);

  ManualClock clock_;
  Context context_;
};

}  // namespace starlane::meta
