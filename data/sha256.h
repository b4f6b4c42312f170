// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Call update() any number of times, then hex() once.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  std::string hex();  // 64 lower-case digits; ends the hash

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> block_;
  uint64_t length_ = 0;  // bytes so far
};

}  // namespace lockstep
