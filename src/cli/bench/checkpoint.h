// A file laid out as torch.save does it, and the ways in which programs load one: mapped and copied
// out forward, or as torch.load(mmap=True) with load_state_dict does, record by record in the
// model's order, each by several threads that walk forward through their shares. Takes paths on any
// file system; checks what it copied. Blocking; one call at a time in a process.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/bytes.h"
#include "common/status.h"

namespace starlane::cli::bench {

struct Record {
  std::uint64_t offset = 0;  // of its bytes; its local header lies before
  std::uint64_t length = 0;
};

/// The records of a transformer that fills about `length` bytes, in the order in which the model
/// has them; in the file they lie in the lexicographic order of their numbers (0, 1, 10, 11, 2, …),
/// at multiples of 64 that are no multiples of a page, as torch.save leaves them.
std::vector<Record> transformer_records(std::uint64_t length);
std::uint64_t end_of(const std::vector<Record>& records);

struct LoadPlan {
  std::filesystem::path file;
  std::uint64_t seed = 0;
  std::vector<Record> records;  // empty: the whole file, forward
  std::size_t threads = 1;      // that share the copying of a record
  bool open_twice = true;  // as torch and safetensors do: headers by one descriptor, map another
};
/// Maps the file privately, copies all of it into `into`, and unmaps. Where `into` is shorter than
/// the file it is used again and again. Bytes a second, opens included.
Result<double> load_mapped(const LoadPlan& plan, MutableByteSpan into);

/// The same by read(), 4 MiB a call: what the mapped load is held against.
Result<double> load_read(const LoadPlan& plan, MutableByteSpan into);

/// What a process of its own saw while it loaded the file.
struct Visit {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;
  std::uint64_t page_faults = 0;  // minor and major, of the load alone
};
/// `processes` at once, each into memory of its own (of 16 MiB, used again and again).
Result<std::vector<Visit>> load_in_processes(const LoadPlan& plan, std::size_t processes);

}  // namespace starlane::cli::bench
