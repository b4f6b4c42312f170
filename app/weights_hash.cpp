#include <lockstep/app/weights_hash.h>

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include <lockstep/data/sha256.h>

namespace lockstep {

std::string weights_sha256(const Params& tensors, std::span<const std::string> names) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
  Sha256 hash;
  for (const auto i : order) {
    const auto host = tensors[i].detach().cpu().contiguous();
    hash.update(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
  }
  return hash.hex();
}

}  // namespace lockstep
