// What running roles say of themselves, in files that `status` reads: so that it answers even while
// a role hangs.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/mutex.h"
#include "common/thread_pool.h"
#include "wire/roles.h"

namespace starlane::wire {

struct StateWriter::State {
  Site site;
  std::vector<std::pair<std::string, Role*>> roles;
  std::vector<std::string> metrics;
  Mutex m;
  CondVar wake;
  bool stopping SL_GUARDED_BY(m) = false;
  std::thread thread;

  void write_all() const {
    for (const auto& [name, role] : roles) {
      const std::filesystem::path file = site.state_file(name);
      const std::string draft = file.string() + ".new";
      const auto figures = nlohmann::json::parse(role->figures(), nullptr, false);
      std::ofstream(draft) << nlohmann::json{{"role", name},
                                             {"pid", ::getpid()},
                                             {"metrics", metrics},
                                             {"figures", figures}}
                                  .dump()
                           << "\n";
      std::error_code ignored;
      std::filesystem::rename(draft, file, ignored);
    }
  }

  void run() {
    name_this_thread("state-writer");
    for (;;) {
      write_all();
      MutexLock lock(m);
      if (!stopping) wake.wait_for(m, std::chrono::seconds(1));
      if (stopping) return;
    }
  }
};

StateWriter::StateWriter(const Site& site, std::vector<std::pair<std::string, Role*>> roles,
                         std::vector<std::string> metrics)
    : state_(new State{.site = site,
                       .roles = std::move(roles),
                       .metrics = std::move(metrics),
                       .m = {},
                       .wake = {},
                       .stopping = false,
                       .thread = {}}) {
  state_->thread = std::thread([this] { state_->run(); });
}

StateWriter::~StateWriter() {
  {
    MutexLock lock(state_->m);
    state_->stopping = true;
    state_->wake.notify_all();
  }
  state_->thread.join();
  for (const auto& [name, role] : state_->roles) {
    std::error_code ignored;
    std::filesystem::remove(state_->site.state_file(name), ignored);
  }
}

}  // namespace starlane::wire
