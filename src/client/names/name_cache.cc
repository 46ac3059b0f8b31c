#include "client/names/name_cache.h"

#include <algorithm>

namespace starlane::client {
namespace {

NameKey attributes_key(FileKey file) { return {file, {}}; }

bool same_but_content(const Attributes& a, const Attributes& b) {
  return a.mode == b.mode && a.nlink == b.nlink && a.uid == b.uid && a.gid == b.gid &&
         a.rdev == b.rdev && a.generation == b.generation && a.parent == b.parent;
}

}  // namespace

NameCache::NameCache(const Clock& clock, const Options& options)
    : clock_(clock),
      options_(options),
      attributes_(options.attributes),
      names_(options.names),
      xattrs_(options.xattrs) {}

Nanoseconds NameCache::valid(const Attached& view, Nanoseconds asked_at) const {
  if (view.frozen) return options_.frozen_ttl;
  const Nanoseconds now = clock_.boot();
  if (const auto since = view.exclusive_since(now); since && asked_at >= *since)
    return options_.shared_ttl;
  const Nanoseconds until = asked_at + options_.shared_ttl;
  return until > now ? until - now : Nanoseconds::zero();
}

std::optional<Believed<Attributes>> NameCache::attributes(const Attached& view, InodeId inode) {
  const auto known = attributes_.find({view.branch, inode});
  if (!known) return std::nullopt;
  const Nanoseconds left = valid(view, known->asked_at);
  if (left == Nanoseconds::zero()) return std::nullopt;
  return Believed<Attributes>{known->attributes, left};
}

std::optional<Believed<InodeId>> NameCache::name(const Attached& view, InodeId directory,
                                                 std::string_view name) {
  const auto known = names_.find({{view.branch, directory}, std::string(name)});
  if (!known) return std::nullopt;
  const Nanoseconds left = valid(view, known->asked_at);
  if (left == Nanoseconds::zero()) return std::nullopt;
  // Another host may create the name at any time, and who is told of it must find it: absence is
  // never assumed there.
  const auto since = view.exclusive_since(clock_.boot());
  if (!known->inode && !view.frozen && !(since && known->asked_at >= *since)) return std::nullopt;
  return Believed<InodeId>{known->inode, left};
}

InodeId NameCache::last_known(FileKey directory, std::string_view name) {
  const auto known = names_.find({directory, std::string(name)});
  return known ? known->inode : InodeId();
}

void NameCache::if_fresh(const Question& question, const NameKey& key,
                         const std::function<void()>& keep) {
  Stripe& stripe = stripe_of(key);
  MutexLock lock(stripe.m);
  if (stripe.changing == 0 && stripe.last <= question.order) keep();
}

void NameCache::learn_attributes(const Question& question, BranchId branch,
                                 const Attributes& attributes) {
  const FileKey file{branch, attributes.inode};
  if_fresh(question, attributes_key(file), [&] {
    attributes_.put(file, {attributes, question.asked_at});
  });
}

void NameCache::learn_name(const Question& question, FileKey directory, std::string_view name,
                           InodeId inode) {
  const NameKey key{directory, std::string(name)};
  if_fresh(question, key, [&] { names_.put(key, {inode, question.asked_at}); });
}

bool NameCache::still_fresh(const Question& question, FileKey directory, std::string_view name) {
  bool fresh = false;
  if_fresh(question, {directory, std::string(name)}, [&] { fresh = true; });
  return fresh;
}

NameCache::Xattrs NameCache::xattrs(const Attached& view, InodeId inode) {
  const auto known = xattrs_.find({view.branch, inode});
  return known && valid(view, known->asked_at) != Nanoseconds::zero() ? known->names : nullptr;
}

void NameCache::learn_xattrs(const Question& question, FileKey file, Xattrs names) {
  std::size_t bytes = 0;
  for (const std::string& name : *names) bytes += name.size();
  if (bytes > 4096) return;  // rare, and the limit of this cache is in entries
  if_fresh(question, attributes_key(file), [&] {
    xattrs_.put(file, {std::move(names), question.asked_at});
  });
}

void NameCache::forget_attributes(FileKey file) { attributes_.erase(file); }

void NameCache::forget_name(FileKey directory, std::string_view name) {
  names_.erase({directory, std::string(name)});
}

void NameCache::committed(FileKey file, const Attributes& attributes) {
  Stripe& stripe = stripe_of(attributes_key(file));
  MutexLock lock(stripe.m);
  stripe.last = ++order_;
  auto known = attributes_.find(file);
  if (!known) return;
  if (!same_but_content(known->attributes, attributes)) return attributes_.erase(file);
  if (known->attributes.version >= attributes.version) return;
  const WallTime ctime = std::max(known->attributes.ctime, attributes.ctime);
  known->attributes.length = attributes.length;
  known->attributes.bytes = attributes.bytes;
  known->attributes.version = attributes.version;
  known->attributes.mtime = attributes.mtime;
  known->attributes.atime = attributes.atime;
  known->attributes.ctime = ctime;
  attributes_.put(file, *known);
}

std::uint64_t NameCache::begin(const NameKey& key) {
  Stripe& stripe = stripe_of(key);
  MutexLock lock(stripe.m);
  ++stripe.changing;
  return stripe.last = ++order_;
}

void NameCache::end(const Change&, const NameKey& key, std::uint64_t began,
                    const std::function<void(bool alone)>& keep) {
  Stripe& stripe = stripe_of(key);
  MutexLock lock(stripe.m);
  --stripe.changing;
  keep(stripe.changing == 0 && stripe.last == began);
  stripe.last = ++order_;
}

void NameCache::Change::touch(NameKey key) {
  for (const Touched& touched : touched_)
    if (touched.key == key) return;
  const std::uint64_t order = cache_->begin(key);
  touched_.push_back({std::move(key), order, std::nullopt, std::nullopt});
}

void NameCache::Change::touch_attributes(FileKey file) { touch(attributes_key(file)); }
void NameCache::Change::touch_name(FileKey directory, std::string_view name) {
  touch({directory, std::string(name)});
}

void NameCache::Change::now(FileKey file, const Attributes& attributes) {
  const NameKey key = attributes_key(file);
  for (Touched& touched : touched_)
    if (touched.key == key) touched.attributes = attributes;
}

void NameCache::Change::now(FileKey directory, std::string_view name, InodeId inode) {
  const NameKey key{directory, std::string(name)};
  for (Touched& touched : touched_)
    if (touched.key == key) touched.inode = inode;
}

NameCache::Change::~Change() {
  for (const Touched& touched : touched_) {
    cache_->end(*this, touched.key, touched.order, [&](bool alone) {
      if (touched.key.name.empty()) {
        if (alone && touched.attributes)
          cache_->attributes_.put(touched.key.directory, {*touched.attributes, sent_at_});
        else
          cache_->attributes_.erase(touched.key.directory);
        cache_->xattrs_.erase(touched.key.directory);
      } else if (alone && touched.inode) {
        cache_->names_.put(touched.key, {*touched.inode, sent_at_});
      } else {
        cache_->names_.erase(touched.key);
      }
    });
  }
}

}  // namespace starlane::client
