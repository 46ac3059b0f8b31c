#include "common/status.h"

#include <cstdio>
#include <cstdlib>

#include "common/errno.h"

namespace starlane {

std::string Status::to_string() const {
  std::string out(name_of(code_));
  if (!text_.empty()) out.append(": ").append(text_);
  return out;
}

Status Status::with(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + text_);
}

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "starlane: broken invariant at %s:%d: %s\n", file, line, expression);
  std::abort();
}

}  // namespace starlane
