// Makes records of CIFAR's binary form, for tests.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::testing {

// The label, behind a coarse one that is 77 if there are two, and 3,072 pixels from `first` on, each one more
// than the one before, modulo 256.
inline std::string cifar_record(uint8_t label, int64_t first, int label_bytes) {
  std::string record(label_bytes == 2 ? 1 : 0, '\x4d');
  record += static_cast<char>(label);
  for (int64_t i = 0; i < 3072; ++i) record += static_cast<char>(static_cast<uint8_t>(first + i));
  return record;
}

}  // namespace lockstep::testing
