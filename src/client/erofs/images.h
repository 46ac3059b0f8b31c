// The images of this mount's trees, by slot: made when they are first asked for, kept while the
// kernel has one open. Any thread; who asks for one that is being made waits for it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "client/erofs/image.h"
#include "client/names/flights.h"
#include "common/mutex.h"

namespace starlane::client::erofs {

class Images {
 public:
  /// budget_bytes: of all of them.
  explicit Images(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  using Made = std::shared_ptr<const Image>;
  enum class Keep : std::uint8_t { for_now, until_closed };

  /// make: a new one of at most so many bytes. check: whether the caller still waits.
  using Make = std::function<Result<Made>(std::uint64_t most_bytes)>;
  Result<Made> get(std::uint16_t slot, Keep keep, const Make& make,
                   const std::function<Status()>& check) SL_EXCLUDES(m_);
  void opened(std::uint16_t slot) SL_EXCLUDES(m_);
  /// After the last one the image goes; whoever reads on, has another made.
  void closed(std::uint16_t slot) SL_EXCLUDES(m_);

 private:
  struct Known {
    Made image;
    int opens = 0;
    bool kept = false;
  };
  Made known(std::uint16_t slot, Keep keep) SL_EXCLUDES(m_);
  /// Frees what nobody needs, and says what may be taken.
  std::uint64_t make_room() SL_EXCLUDES(m_);
  void learn(std::uint16_t slot, const Made& image) SL_EXCLUDES(m_);

  const std::uint64_t budget_bytes_;
  Flights<std::uint16_t, Made> flights_;
  Mutex m_;
  std::unordered_map<std::uint16_t, Known> known_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::client::erofs
