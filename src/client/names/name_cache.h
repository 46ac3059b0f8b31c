// What this client knows of names and attributes, in bounded caches that never hold what a change
// of this client's own has overtaken: an answer that was asked before a change is not kept after
// it. Any thread. Locks: a stripe's, then a shard's of a map; never held over a call.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/names/attributes.h"
#include "client/names/bounded_map.h"
#include "client/session/sessions.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace starlane::client {

struct NameKey {
  FileKey directory;
  std::string name;
  friend bool operator==(const NameKey&, const NameKey&) = default;
};

}  // namespace starlane::client

template <>
struct std::hash<starlane::client::NameKey> {
  std::size_t operator()(const starlane::client::NameKey& key) const {
    return starlane::mix64(std::hash<starlane::FileKey>{}(key.directory) ^
                           std::hash<std::string>{}(key.name));
  }
};

namespace starlane::client {

/// What a cache holds, and how long it may still be believed.
template <typename T>
struct Believed {
  T value;
  Nanoseconds valid{0};
};

class NameCache {
 public:
  struct Options {
    std::size_t attributes = 256 * 1024;
    std::size_t names = 512 * 1024;
    std::size_t xattrs = 64 * 1024;
    Nanoseconds shared_ttl = std::chrono::seconds(1);
    Nanoseconds frozen_ttl = std::chrono::hours(24);
  };

  NameCache(const Clock& clock, const Options& options);

  // ---- Asking ----
  std::optional<Believed<Attributes>> attributes(const Attached& view, InodeId inode);
  /// Inode 0: there is no such name.
  std::optional<Believed<InodeId>> name(const Attached& view, InodeId directory,
                                        std::string_view name);
  /// As last heard, however long ago: a guess.
  InodeId last_known(FileKey directory, std::string_view name);
  /// How long something learnt at `asked_at` may be believed; zero: not any more.
  Nanoseconds valid(const Attached& view, Nanoseconds asked_at) const;

  // ---- Answers of the server ----
  /// Before a question is sent: an answer is kept if no change of its subject began or ended since.
  struct Question {
    std::uint64_t order = 0;
    Nanoseconds asked_at{0};
  };
  Question ask() const { return {order_.load(), clock_.boot()}; }
  void learn_attributes(const Question& question, BranchId branch, const Attributes& attributes);
  void learn_name(const Question& question, FileKey directory, std::string_view name,
                  InodeId inode);
  /// No change of this name began or ended since: the answer may be shared with who asks now.
  bool still_fresh(const Question& question, FileKey directory, std::string_view name);
  void forget_attributes(FileKey file);
  /// Names of a file's extended attributes; they follow the file's attributes.
  using Xattrs = std::shared_ptr<const std::vector<std::string>>;
  Xattrs xattrs(const Attached& view, InodeId inode);
  void learn_xattrs(const Question& question, FileKey file, Xattrs names);
  void forget_name(FileKey directory, std::string_view name);

  /// A commit of FileIo: its content goes into what is known; anything else that differs is asked
  /// again.
  void committed(FileKey file, const Attributes& attributes);

  // ---- Changes of this client's own ----
  /// From before the call until after its answer. What it touched and was not told the outcome of
  /// is forgotten.
  class Change {
   public:
    explicit Change(NameCache& cache) : cache_(&cache), sent_at_(cache.clock_.boot()) {}
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change();

    void touch_attributes(FileKey file);
    void touch_name(FileKey directory, std::string_view name);
    /// Of what was touched.
    void now(FileKey file, const Attributes& attributes);
    void now(FileKey directory, std::string_view name, InodeId inode);

   private:
    struct Touched {
      NameKey key;  // name empty: attributes of key.directory
      std::uint64_t order = 0;
      std::optional<Attributes> attributes;
      std::optional<InodeId> inode;
    };
    void touch(NameKey key);

    NameCache* cache_;
    const Nanoseconds sent_at_;
    std::vector<Touched> touched_;
  };

  std::size_t size() { return attributes_.size() + names_.size(); }

 private:
  struct KnownAttributes {
    Attributes attributes;
    Nanoseconds asked_at{0};
  };
  struct KnownName {
    InodeId inode;
    Nanoseconds asked_at{0};
  };
  struct KnownXattrs {
    Xattrs names;
    Nanoseconds asked_at{0};
  };
  struct alignas(64) Stripe {
    Mutex m;
    std::uint64_t last SL_GUARDED_BY(m) = 0;  // order of the last begin or end of a change
    std::uint32_t changing SL_GUARDED_BY(m) = 0;
  };

  Stripe& stripe_of(const NameKey& key) { return stripes_[std::hash<NameKey>{}(key) % kStripes]; }
  std::uint64_t begin(const NameKey& key);
  void end(const Change& change, const NameKey& key, std::uint64_t began,
           const std::function<void(bool alone)>& keep);
  void if_fresh(const Question& question, const NameKey& key, const std::function<void()>& keep);

  static constexpr std::size_t kStripes = 4096;

  const Clock& clock_;
  const Options options_;
  std::atomic<std::uint64_t> order_{
      1};  // of begins and ends of changes; raised under a stripe's lock
  std::unique_ptr<std::array<Stripe, kStripes>> owned_ =
      std::make_unique<std::array<Stripe, kStripes>>();
  std::array<Stripe, kStripes>& stripes_ = *owned_;
  BoundedMap<FileKey, KnownAttributes> attributes_;
  BoundedMap<NameKey, KnownName> names_;
  BoundedMap<FileKey, KnownXattrs> xattrs_;
};

}  // namespace starlane::client
