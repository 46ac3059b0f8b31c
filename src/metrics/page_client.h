// Asks a PageServer for a page. Blocks; any thread.
#pragma once
#include <string>

#include "common/clock.h"
#include "common/status.h"

namespace starlane::metrics {

struct PageWanted {
  std::string where;  // "unix:/path", or HOST:PORT
  std::string method = "GET";
  std::string target = "/metrics";  // encoded
  Nanoseconds patience = std::chrono::seconds(5);
};

/// The body. Errors: unavailable (nobody serves there, or too slowly), invalid (the page's own
/// sentence), not_found (there is no such page).
Result<std::string> fetch_page(const PageWanted& wanted);

/// As it may stand in a query.
std::string encoded(const std::string& text);

}  // namespace starlane::metrics
