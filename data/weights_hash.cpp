#include <lockstep/data/weights_hash.h>

#include <torch/types.h>

#include <algorithm>
#include <span>

#include <lockstep/support/files/sha256.h>

namespace lockstep {

std::string weights_sha256(std::vector<NamedTensor> weights) {
  std::sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  Sha256 hash;
  for (const auto& weight : weights) {
    const auto host = weight.tensor.detach().cpu().contiguous();
    hash.update(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
  }
  return hash.hex();
}

}  // namespace lockstep
