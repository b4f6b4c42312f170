// The source of resident_rows(), for sources that read its rows in place.
#pragma once

#include <cstdint>
#include <utility>

#include <lockstep/support/types.h>

namespace lockstep {

class ResidentRows : public BatchSource {
 public:
  explicit ResidentRows(Batch all) : all_(std::move(all)) {}

  int64_t size() const override { return all_.rows(); }
  BatchSpec spec() const override { return all_.spec(); }
  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override;

  // Writes tensor i of these rows, as gather() does.
  void gather_tensor(size_t i, const torch::Tensor& rows, Batch& into) const;

  const Batch& all() const { return all_; }

 private:
  const Batch all_;
};

}  // namespace lockstep
