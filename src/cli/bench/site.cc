#include "cli/bench/site.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <thread>

#include "common/bytes.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr Nanoseconds kAppearLimit = std::chrono::seconds(10);
constexpr Nanoseconds kSpaceLimit = std::chrono::seconds(30);
// The mount writes its figures once a second.
constexpr Milliseconds kFigures{1300};

Status make_directory(const fs::path& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  return failed ? Status(Errc::io, "cannot make " + directory.string() + ": " + failed.message())
                : Status();
}

}  // namespace

Status Site::cold(const Mode& mode) {
  SL_TRY(service_.stop());
  SL_TRY(make_directory(mount()));
  SL_TRY(make_directory(directory_ / "store"));
  Words words{"--dir",
              site().string(),
              "up",
              "--mount",
              mount().string(),
              "--store-dir",
              (directory_ / "store").string()};
  if (mode.separate) words.push_back("--separate");
  if (!mode.passthrough) words.push_back("--no-passthrough");
  Result<Service> started = Service::start(std::move(words), directory_ / "up.log");
  if (!started.ok()) return started.status().with("cannot start a site to measure");
  service_ = std::move(*started);
  mode_ = &mode;
  std::error_code failed;
  if (!fs::exists(volume(), failed)) SL_TRY(command({"volume", "create", "bench"}));
  // The kernel may believe for a second that it is not there.
  for (const Deadline deadline = Deadline::after(kAppearLimit); !fs::exists(volume(), failed);) {
    if (deadline.passed())
      return Status(Errc::timeout, "the volume does not appear at " + volume().string());
    std::this_thread::sleep_for(Milliseconds(20));
  }
  return {};
}

Status Site::ensure(const Mode& mode) {
  return service_.running() && mode_ == &mode ? Status() : cold(mode);
}

Result<std::string> Site::command(Words words) const {
  words.insert(words.begin(), {"--dir", site().string()});
  return starlane(std::move(words));
}

Result<json> Site::status() const {
  json status = json::parse(SL_TRY(command({"--json", "status"})), nullptr, false);
  if (!status.is_object())
    return Status(Errc::protocol, "`starlane status` did not answer in JSON");
  return status;
}

double Site::cpu_seconds() const { return cpu_seconds_of(service_.pid()); }

Result<std::uint64_t> Site::stored_bytes() const {
  const json now = SL_TRY(status());
  std::uint64_t bytes = 0;
  const json targets = now.value("targets", json::array());
  for (const json& target : targets) bytes += target.value("stored_bytes", std::uint64_t{0});
  return bytes;
}

Result<std::uint64_t> Site::settled_fetched_bytes() const {
  std::uint64_t before = 0;
  for (int round = 0;; ++round) {
    std::this_thread::sleep_for(kFigures);
    const json now = SL_TRY(status());
    const std::uint64_t bytes =
        now.value(json::json_pointer("/roles/mount/figures/fetched_bytes"), std::uint64_t{0});
    if (round > 0 && bytes == before) return bytes;
    before = bytes;
  }
}

Status Site::wait_for_space(std::uint64_t bytes) const {
  const Deadline deadline = Deadline::after(kSpaceLimit);
  while (SL_TRY(stored_bytes()) > bytes && !deadline.passed())
    std::this_thread::sleep_for(Milliseconds(100));
  return {};
}

Status Ceiling::cold(const std::vector<Shown>& files) {
  SL_TRY(service_.stop());
  SL_TRY(make_directory(mount()));
  Words words{"bench", "--serve-ceiling", mount().string()};
  for (const Shown& shown : files) words.insert(words.end(), {"--shown", word_of(shown)});
  Result<Service> started = Service::start(std::move(words), directory_ / "ceiling.log");
  if (!started.ok()) return started.status().with("cannot start the server to compare with");
  service_ = std::move(*started);
  return {};
}

std::string word_of(const Shown& shown) {
  return std::to_string(shown.offset) + ":" + std::to_string(shown.length) + ":" + shown.name +
         ":" + shown.file.string();
}

Result<Shown> shown_of(const std::string& word) {
  Shown shown;
  const char* const end = word.data() + word.size();
  const auto [offset_end, offset_error] = std::from_chars(word.data(), end, shown.offset);
  const Status wrong(Errc::invalid, "--shown takes OFFSET:LENGTH:NAME:FILE, not " + word);
  if (offset_error != std::errc() || offset_end == end) return wrong;
  const auto [length_end, length_error] = std::from_chars(offset_end + 1, end, shown.length);
  if (length_error != std::errc() || length_end == end) return wrong;
  const std::string rest(length_end + 1, end);
  const std::size_t at = rest.find(':');
  if (at == std::string::npos) return wrong;
  shown.name = rest.substr(0, at);
  shown.file = rest.substr(at + 1);
  return shown;
}

}  // namespace starlane::cli::bench
