// Image files as a torch::data data set, with transforms of torch::data or of your own:
//
//   const auto flip = [](torch::data::Example<> row) { ... };
//   const auto train = dataset_rows(ImageFiles(photos.train, {.size = 224}).map(Lambda<Example<>>(flip)),
//                                   {.seed = 1, .workers = 4});
//
// or with a DataLoader (data_loader.h) in a loop of your own.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <lockstep/data/images/decoded_rows.h>

namespace lockstep {

// Row i is file i: (channels, height, width) uint8, and its label () int64. A copy shares the list. get()
// throws as decode_file() does.
class ImageFiles : public torch::data::datasets::Dataset<ImageFiles> {
 public:
  explicit ImageFiles(ImageList files, DecodeOptions options = {})
      : files_(std::move(files)), options_(options) {}

  torch::data::Example<> get(size_t row) override {
    const auto file = files_.at(row);
    const auto image = decode_file(file, options_);
    auto bytes = torch::empty({image.channels, image.height, image.width}, torch::kUInt8);
    std::ranges::copy(image.values, bytes.mutable_data_ptr<uint8_t>());
    return {bytes, torch::tensor(file.label, torch::kInt64)};
  }
  std::optional<size_t> size() const override { return files_.size(); }

 private:
  ImageList files_;
  DecodeOptions options_;
};

}  // namespace lockstep
