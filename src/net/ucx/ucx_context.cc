#include "net/ucx/ucx_context.h"

#include <poll.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace starlane::net {
namespace {

/// Segments of System V: unlike files of /dev/shm they cannot shrink under the server that reads
/// them.
constexpr const char* kSharedMemory = "sysv,self";
constexpr const char* kSharedMemoryAndVerbs = "sysv,ib,self";
constexpr int kNapMs = 2;  // at most: UCX does not wake us for everything (its flow control)

bool find_verbs() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

}  // namespace

Status ucx_error(const char* what, ucs_status_t status) {
  const Errc code = status == UCS_ERR_UNREACHABLE ? Errc::unavailable : Errc::io;
  return Status(code, std::string("ucx: ") + what + ": " + ucs_status_string(status));
}

Result<std::shared_ptr<UcxContext>> UcxContext::open() {
  std::shared_ptr<UcxContext> opened(new UcxContext);
  SL_TRY(opened->start());
  return opened;
}

Status UcxContext::start() {
  // Peers that cannot be reached are an answer here, not a line on standard error.
  (void)ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  ucp_config_t* config = nullptr;
  if (const auto s = ucp_config_read(nullptr, nullptr, &config); s != UCS_OK)
    return ucx_error("configuration", s);
  verbs_ = find_verbs();
  ucs_status_t status =
      ucp_config_modify(config, "TLS", verbs_ ? kSharedMemoryAndVerbs : kSharedMemory);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return Status(Errc::unsupported, ucx_error("start", status).text());

  MutexLock lock(m_);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(worker_, &events_);
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  if (status == UCS_OK) status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return ucx_error("worker", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_ep_params_t self{};
  self.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  self.address = address;
  status = ucp_ep_create(worker_, &self, &to_self_);
  ucp_worker_release_address(worker_, address);
  return status == UCS_OK ? Status() : ucx_error("endpoint", status);
}

UcxContext::~UcxContext() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

void UcxContext::progress() {
  MutexLock lock(m_);
  while (ucp_worker_progress(worker_) != 0) {
  }
}

ucs_status_t UcxContext::run(const std::function<ucs_status_t(ucp_worker_h)>& work) {
  MutexLock lock(m_);
  return work(worker_);
}

Status UcxContext::complete(const char* what,
                            const std::function<ucs_status_ptr_t(ucp_worker_h)>& begin) {
  ucs_status_ptr_t request = nullptr;
  {
    MutexLock lock(m_);
    request = begin(worker_);
  }
  if (request == nullptr) return {};
  if (UCS_PTR_IS_ERR(request)) return ucx_error(what, UCS_PTR_STATUS(request));
  for (;;) {
    ucs_status_t status = UCS_INPROGRESS;
    bool sleep = false;
    {
      MutexLock lock(m_);
      while (ucp_worker_progress(worker_) != 0) {
      }
      status = ucp_request_check_status(request);
      if (status != UCS_INPROGRESS) ucp_request_free(request);
      sleep = status == UCS_INPROGRESS && ucp_worker_arm(worker_) == UCS_OK;
    }
    if (status == UCS_OK) return {};
    if (status != UCS_INPROGRESS) return ucx_error(what, status);
    pollfd events{events_, POLLIN, 0};
    if (sleep) (void)::poll(&events, 1, kNapMs);
  }
}

}  // namespace starlane::net
