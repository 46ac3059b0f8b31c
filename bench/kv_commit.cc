// Commits a second of the embedded engine, as a metadata server makes them (two guards, an absent
// name, two rows and an exact counter that all share), beside the bare batches of the table under
// it: what the transactions cost.
//   kv_commit [SECONDS [DIRECTORY...]]      default: 1 second each, /dev/shm and the current
//   directory
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kv/rocksdb/rocksdb_engine.h"
#include "table/table.h"

namespace {

using namespace starlane;

const std::string kInode(120, 'i');

std::string name_of(int thread, std::uint64_t step) {
  return "D/dir/" + std::to_string(thread) + "_" + std::to_string(step);
}

/// Calls `once` from `threads` threads for `seconds`; calls a second.
double rate(int threads, double seconds,
            const std::function<void(int thread, std::uint64_t step)>& once) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> running;
  const auto start = std::chrono::steady_clock::now();
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      std::uint64_t step = 0;
      for (; !stop; ++step) once(thread, step);
      done += step;
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : running) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(done) / took.count();
}

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "kv_commit: %s\n", status.to_string().c_str());
  std::exit(1);
}

double bare(const std::string& directory, int threads, bool sync, double seconds) {
  auto table = table::Table::open({.directory = directory + "/bare"});
  must(table.status());
  return rate(threads, seconds, [&](int thread, std::uint64_t step) {
    table::WriteBatch batch;
    const std::string name = name_of(thread, step);
    batch.put(name, "value");
    batch.put("I/" + name, kInode);
    batch.put("counter" + std::to_string(thread), "12345678");
    must((*table)->write(batch, {.sync = sync}));
  });
}

struct Outcome {
  double commits = 0;
  std::uint64_t conflicts = 0;
};

Outcome transactions(const std::string& directory, int threads, kv::Durability durability,
                     double seconds) {
  auto engine = kv::open_rocksdb({.directory = directory + "/kv"});
  must(engine.status());
  std::atomic<std::uint64_t> committed{0}, conflicts{0};
  const double attempts = rate(threads, seconds, [&](int thread, std::uint64_t step) {
    const auto t = (*engine)->begin();
    const std::string name = name_of(thread, step);
    must(t->get(name).status());
    t->guard("head");
    t->guard("I/dir");
    t->expect(name, kv::kAbsent);
    t->put(name, "value");
    t->put("I/" + name, kInode);
    t->add("counter", 1);
    const Status status = t->commit(durability);
    if (status.code() == Errc::conflict) return void(++conflicts);
    must(status);
    ++committed;
  });
  const auto counted = (*engine)->begin()->total("counter");
  if (!counted.ok() || static_cast<std::uint64_t>(*counted) != committed) {
    std::fprintf(stderr, "kv_commit: the counter is not exact\n");
    std::exit(1);
  }
  return {attempts, conflicts};
}

void measure(const std::string& place, int threads, bool durable, double seconds) {
  std::string directory = place + "/starlane-kv-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr)
    must(Status(Errc::io, "cannot make a directory in " + place));
  const double alone = bare(directory, threads, durable, seconds);
  const Outcome with = transactions(
      directory, threads, durable ? kv::Durability::durable : kv::Durability::ordered, seconds);
  std::filesystem::remove_all(directory);
  std::printf("%-24s %7d  %-8s %12.0f %14.0f %7.2f %10llu\n", place.c_str(), threads,
              durable ? "durable" : "ordered", with.commits, alone, with.commits / alone,
              static_cast<unsigned long long>(with.conflicts));
}

}  // namespace

int main(int count, char** words) {
  const double seconds = count > 1 ? std::atof(words[1]) : 1;
  std::vector<std::string> places(words + std::min(count, 2), words + count);
  if (places.empty()) places = {"/dev/shm", std::filesystem::current_path().string()};
  std::printf("%-24s %7s  %-8s %12s %14s %7s %10s\n", "directory", "threads", "level", "commits/s",
              "bare batches/s", "ratio", "conflicts");
  for (const std::string& place : places)
    for (const bool durable : {false, true})
      for (const int threads : {1, 16}) measure(place, threads, durable, seconds);
}
