#include <lockstep/data/resident_rows.h>

#include <torch/types.h>

#include <lockstep/data/fitting.h>
#include <lockstep/data/resident_rows_source.h>

namespace lockstep {

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
  return [rows](torch::Device device) { return std::make_shared<ResidentRows>(rows.to(device)); };
}

}  // namespace lockstep
