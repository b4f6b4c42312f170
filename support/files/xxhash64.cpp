#include <lockstep/support/files/xxhash64.h>

#define XXH_INLINE_ALL
#define XXH_NO_XXH3
#include <xxhash.h>

namespace lockstep {

uint64_t xxhash64(std::span<const std::byte> bytes) { return XXH64(bytes.data(), bytes.size(), /*seed=*/0); }

}  // namespace lockstep
