#include <lockstep/data/resident_rows.h>

#include <torch/types.h>

#include <lockstep/data/fitting.h>

namespace lockstep {
namespace {

class ResidentRows : public BatchSource {
 public:
  explicit ResidentRows(Batch all) : all_(std::move(all)) {}

  int64_t size() const override { return all_.rows(); }
  BatchSpec spec() const override { return all_.spec(); }

  void gather(const torch::Tensor& rows, int64_t /*epoch*/, Batch& into) const override {
    for (size_t i = 0; i < all_.size(); ++i) {
      auto sizes = all_[i].sizes().vec();
      sizes[0] = rows.size(0);
      into[i] = fitting(into[i], sizes, all_[i].options());
      torch::index_select_out(into[i], all_[i], 0, rows);
    }
  }

 private:
  const Batch all_;
};

}  // namespace

SourceFactory resident_rows(const Batch& rows) {
  return [rows](torch::Device device) { return std::make_shared<ResidentRows>(rows.to(device)); };
}

}  // namespace lockstep
