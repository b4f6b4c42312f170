#include <lockstep/support/files/xxhash64.h>

#include <array>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash is defined over little-endian words");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32;  // bytes

template <typename Word>
uint64_t word_at(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t mixed_in(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

// Hashes all whole stripes (at least one) in four lanes that do not wait for each other.
// Moves `bytes` to what is left.
uint64_t hash_stripes(std::span<const std::byte>& bytes) {
  std::array<uint64_t, 4> lanes = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  const auto* at = bytes.data();
  const auto* end = at + bytes.size() / kStripe * kStripe;
  for (; at != end; at += kStripe) {
    for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = mixed_in(lanes[i], word_at<uint64_t>(at + 8 * i));
  }
  bytes = bytes.last(bytes.size() % kStripe);
  auto hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const auto lane : lanes) hash = (hash ^ mixed_in(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

// rest: fewer bytes than a stripe has.
uint64_t hash_rest(uint64_t hash, std::span<const std::byte> rest) {
  for (; rest.size() >= 8; rest = rest.subspan(8)) {
    hash ^= mixed_in(0, word_at<uint64_t>(rest.data()));
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  if (rest.size() >= 4) {
    hash ^= word_at<uint32_t>(rest.data()) * kPrime1;
    hash = std::rotl(hash, 23) * kPrime2 + kPrime3;
    rest = rest.subspan(4);
  }
  for (const auto byte : rest) {
    hash ^= std::to_integer<uint64_t>(byte) * kPrime5;
    hash = std::rotl(hash, 11) * kPrime1;
  }
  return hash;
}

// Every bit of the input changes about half of the bits of the result.
uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t xxhash64(std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  const auto hash = bytes.size() < kStripe ? kPrime5 : hash_stripes(bytes);
  return avalanche(hash_rest(hash + length, bytes));
}

}  // namespace lockstep
