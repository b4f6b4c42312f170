// A small data set in Fashion-MNIST's format, in a folder of its own, for quick runs.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/tests/data/idx_bytes.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep::testing {

class SmallData {
 public:
  // The classes differ in brightness, which a network learns quickly. They overlap, so that it makes
  // mistakes.
  explicit SmallData(uint32_t train_rows = 640, uint32_t test_rows = 300) {
    write("train", train_rows, 1);
    write("t10k", test_rows, 2);
  }

  std::string folder() const { return folder_.path().string(); }

 private:
  void write(const std::string& name, uint32_t rows, uint64_t seed) const {
    constexpr uint32_t kPixels = 28 * 28;
    testing::Bytes images, labels;
    uint64_t state = seed;  // D. Knuth's MMIX generator
    const auto draw = [&](uint32_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<uint32_t>(state >> 33) % below;
    };
    for (uint32_t row = 0; row < rows; ++row) {
      const auto label = draw(10);
      const auto level = 15 * label + draw(45);
      labels.push_back(static_cast<uint8_t>(label));
      for (uint32_t i = 0; i < kPixels; ++i) images.push_back(static_cast<uint8_t>(level + draw(64)));
    }
    testing::write_bytes(folder_ / (name + "-images-idx3-ubyte"), testing::idx_bytes({rows, 28, 28}, images));
    testing::write_bytes(folder_ / (name + "-labels-idx1-ubyte"), testing::idx_bytes({rows}, labels));
  }

  testing::TempFolder folder_;
};

}  // namespace lockstep::testing
