#include <lockstep/data/resident_rows.h>

#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <lockstep/data/fitting.h>
#include <lockstep/data/resident_rows_source.h>

namespace lockstep {
namespace {

// The copies of some rows on devices, as long as a source has them.
class SharedRows {
 public:
  explicit SharedRows(const Batch& rows) : rows_(rows) {}

  std::shared_ptr<const ResidentRows> on(torch::Device device) {
    const std::lock_guard lock(mutex_);
    auto& known = by_device_[device.str()];
    auto there = known.lock();
    if (!there) known = there = std::make_shared<const ResidentRows>(rows_.to(device));
    return there;
  }

 private:
  const Batch rows_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const ResidentRows>> by_device_;
};

}  // namespace

void ResidentRows::gather(const torch::Tensor& rows, int64_t /*epoch*/, Batch& into) const {
  for (size_t i = 0; i < all_.size(); ++i) gather_tensor(i, rows, into);
}

void ResidentRows::gather_tensor(size_t i, const torch::Tensor& rows, Batch& into) const {
  auto sizes = all_[i].sizes().vec();
  sizes[0] = rows.size(0);
  into[i] = fitting(into[i], sizes, all_[i].options());
  torch::index_select_out(into[i], all_[i], 0, rows);
}

SourceFactory resident_rows(const Batch& rows) {
  return [shared = std::make_shared<SharedRows>(rows)](torch::Device device) { return shared->on(device); };
}

}  // namespace lockstep
