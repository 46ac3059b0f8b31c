// Publishing a local directory as a version of a data set: ingested by many workers, each file read
// back and compared, resumable at the file where it stopped, frozen at the end. Blocks until done;
// one call at a time an object.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "client/attachments.h"
#include "client/file_io.h"
#include "dataset/source_tree.h"
#include "proto/meta_service.h"

namespace starlane::dataset {

/// Where a tree is written to or read from: the services, and the attached branch of an image.
struct ImageAccess {
  MetaService& meta;
  client::FileIo& io;
  client::Attachments& attachments;
  BranchId branch;
};

struct PublishOptions {
  std::size_t workers = 4;
  /// Told from any worker as bytes are written and verified; the sum of both is twice the tree's
  /// bytes.
  std::function<void(std::uint64_t bytes)> advance = [](std::uint64_t) {};
};

struct Published {
  std::uint64_t files = 0, directories = 0, bytes = 0;
  std::uint64_t resumed_files = 0;  // found complete from an earlier attempt
  std::string digest;
};

/// Copies `tree` into the image's branch; it is durable when this returns. The image is not frozen
/// yet. Errors: corrupt (what was read back differs), stale (a source file changed meanwhile),
/// those of the services.
Result<Published> ingest(const SourceTree& tree, const ImageAccess& image,
                         const PublishOptions& options);

/// Reads a published tree back from the store and returns its digest and counts.
Result<Published> digest_of(const ImageAccess& image, const PublishOptions& options);

}  // namespace starlane::dataset
