// What a site says of itself: the state files of its running roles, and what its servers answer.
// One thread.
#pragma once
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "wire/connection.h"
#include "wire/site.h"

namespace starlane::cli {

/// What each running role last wrote of itself, by role.
nlohmann::json role_states(const wire::Site& site);
/// Targets, sessions and totals, asked of the servers.
Result<nlohmann::json> site_status(wire::Connection& connection);

}  // namespace starlane::cli
