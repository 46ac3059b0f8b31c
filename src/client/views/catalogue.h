// What there is to mount: volumes and published versions of data sets, as the server lists them,
// remembered for a moment. Any thread; equal questions are asked once.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "client/names/flights.h"
#include "client/session/sessions.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"

namespace starlane::client {

struct CatalogueItem {
  AttachTarget target;
  BranchId branch;
  ViewId view;
};

struct Listing {
  std::map<std::string, CatalogueItem> volumes;
  std::map<std::string, std::map<std::string, CatalogueItem>> images;  // name, version
  Nanoseconds asked_at{0};

  /// Null: not there.
  const CatalogueItem* find(const AttachTarget& target) const;
};

class Catalogue {
 public:
  using Heard = std::function<void(const Listing&)>;
  /// heard: of every new listing, before anybody is answered from it.
  Catalogue(Sessions& sessions, Heard heard) : sessions_(sessions), heard_(std::move(heard)) {}

  /// No older than `age`.
  Result<std::shared_ptr<const Listing>> listing(Nanoseconds age, std::uint64_t unique)
      SL_EXCLUDES(m_);

 private:
  Result<std::shared_ptr<const Listing>> ask(std::uint64_t unique);

  Sessions& sessions_;
  const Heard heard_;
  Flights<int, std::shared_ptr<const Listing>> flights_;
  Mutex m_;
  std::shared_ptr<const Listing> known_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client
