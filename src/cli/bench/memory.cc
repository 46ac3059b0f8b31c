#include "cli/bench/memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>

namespace starlane::cli::bench {
namespace {

constexpr std::uint64_t kPart = 64_MiB;
constexpr std::uint64_t kInAdvance = 512_MiB;  // what hosts were seen to leave alone

std::uint64_t free_memory() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.freeram} * info.mem_unit : 0;
}

void use(const std::vector<Memory>& parts) {
  const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  std::vector<std::thread> running;
  for (std::size_t first = 0; first < threads; ++first)
    running.emplace_back([&parts, first, threads] {
      for (std::size_t i = first; i < parts.size(); i += threads) {
        const MutableByteSpan part = parts[i].span();
        for (std::size_t at = 0; at < part.size(); at += 4_KiB) part[at] = std::byte{1};
      }
    });
  for (std::thread& thread : running) thread.join();
}

}  // namespace

MemoryAtHand::MemoryAtHand(std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < divide_up(bytes, kPart); ++i) {
    auto part = Memory::fresh(kPart);
    if (!part.ok()) break;
    ::madvise(part->span().data(), kPart, MADV_HUGEPAGE);
    held_.push_back(std::move(*part));
  }
  use(held_);
  giver_ = std::thread([this] { give_free_in_time(); });
}

MemoryAtHand::~MemoryAtHand() {
  ended_.store(true);
  giver_.join();
}

void MemoryAtHand::give_free_in_time() {
  const std::uint64_t wanted = free_memory() + kInAdvance;
  while (!held_.empty() && !ended_.load()) {
    if (free_memory() < wanted)
      held_.pop_back();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace starlane::cli::bench
