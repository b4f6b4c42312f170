// The records of TensorBoard's event files: TFRecord frames around the few fields of the protocol buffer
// `Event` that scalars need.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the CRC-32C (Castagnoli), as in iSCSI.
uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string_view tag;  // "train/loss"; TensorBoard groups by what precedes the slash
  double value = 0;      // stored as a float
};

// Returns the record that an event file begins with. wall_time: seconds since 1970.
std::string version_record(double wall_time);

// Returns one record of all these scalars, measured after `step` steps.
std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars);

}  // namespace lockstep
