#include "client/views/catalogue.h"

namespace starlane::client {

const CatalogueItem* Listing::find(const AttachTarget& target) const {
  if (!target.volume.empty()) {
    const auto at = volumes.find(target.volume);
    return at == volumes.end() ? nullptr : &at->second;
  }
  const auto name = images.find(target.image_name);
  if (name == images.end()) return nullptr;
  const auto at = name->second.find(target.image_version);
  return at == name->second.end() ? nullptr : &at->second;
}

Result<std::shared_ptr<const Listing>> Catalogue::listing(Nanoseconds age, std::uint64_t unique) {
  const Nanoseconds now = sessions_.clock().boot();
  {
    MutexLock lock(m_);
    if (known_ && now - known_->asked_at <= age) return known_;
  }
  const auto asked = static_cast<std::uint64_t>(now.count());
  return flights_.fly(
      0, asked,
      [&](std::uint64_t order) { return order + static_cast<std::uint64_t>(age.count()) >= asked; },
      [&] { return ask(unique); }, [&] { return sessions_.signals().check(unique); });
}

Result<std::shared_ptr<const Listing>> Catalogue::ask(std::uint64_t unique) {
  auto fresh = std::make_shared<Listing>();
  fresh->asked_at = sessions_.clock().boot();
  Call call;
  call.session = sessions_.id();
  pb::ListVolumesReply volumes;
  SL_TRY(sessions_.retry().call(&MetaService::volume_list, call, pb::Empty(), &volumes, unique));
  for (const pb::Volume& volume : volumes.volumes()) {
    if (volume.state() != "active") continue;
    fresh->volumes[volume.name()] = {
        {.volume = volume.name(), .image_name = {}, .image_version = {}},
        BranchId(volume.branch()),
        ViewId(volume.view())};
  }
  pb::ListImagesReply images;
  SL_TRY(sessions_.retry().call(&MetaService::image_list, call, pb::Empty(), &images, unique));
  for (const pb::Image& image : images.images()) {
    if (image.state() != "published") continue;
    fresh->images[image.name()][image.version()] = {{.volume = {},
                                                     .image_name = image.name(),
                                                     .image_version = image.version(),
                                                     .read_only = true},
                                                    BranchId(image.branch()),
                                                    ViewId(image.view())};
  }
  heard_(*fresh);
  MutexLock lock(m_);
  if (!known_ || known_->asked_at < fresh->asked_at) known_ = fresh;
  return std::shared_ptr<const Listing>(fresh);
}

}  // namespace starlane::client
