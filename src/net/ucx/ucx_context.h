// One UCX context and worker, shared by all regions and endpoints of a fabric. Any thread; the lock
// is held for calls into the worker only.
#pragma once
#include <ucp/api/ucp.h>

#include <functional>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/status.h"

namespace starlane::net {

Status ucx_error(const char* what, ucs_status_t status);

class UcxContext {
 public:
  static Result<std::shared_ptr<UcxContext>> open();
  ~UcxContext();

  ucp_context_h context() const { return context_; }
  /// Of the worker, as other processes need it to reach this one's memory.
  const std::string& address() const { return address_; }
  bool has_verbs() const { return verbs_; }
  /// An endpoint of the worker to itself. For use inside run().
  ucp_ep_h to_self() const { return to_self_; }
  void progress() SL_EXCLUDES(m_);
  /// Runs `begin` on the worker and waits, asleep between completions, until what it returned is
  /// done: memory may be in use until then. Verbs report a dead peer after their retries;
  /// operations on shared memory are done at once.
  Status complete(const char* what, const std::function<ucs_status_ptr_t(ucp_worker_h)>& begin)
      SL_EXCLUDES(m_);
  /// Runs `work` alone on the worker.
  ucs_status_t run(const std::function<ucs_status_t(ucp_worker_h)>& work) SL_EXCLUDES(m_);

 private:
  UcxContext() = default;
  Status start();

  ucp_context_h context_ = nullptr;
  std::string address_;
  ucp_ep_h to_self_ = nullptr;
  bool verbs_ = false;
  int events_ = -1;  // the worker's, readable when it has work
  Mutex m_;
  ucp_worker_h worker_ SL_GUARDED_BY(m_) = nullptr;
};

}  // namespace starlane::net
