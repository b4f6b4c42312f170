// Expected values: Python's xxhash 4.1.0, which wraps the reference implementation.
#include <lockstep/tests/catch.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/files/xxhash64.h>

using namespace lockstep;

namespace {

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>((i * 7 + 3) % 251));
  return bytes;
}

uint64_t hash_of(const std::string& text) { return xxhash64(std::as_bytes(std::span(text))); }

}  // namespace

TEST_CASE("xxhash64 gives the reference's values, for every way in which the end of the input is cut") {
  CHECK(xxhash64({}) == 0xef46db3751d8e999);
  CHECK(hash_of("a") == 0xd24ec4f1a98c6e5b);
  CHECK(hash_of("abc") == 0x44bc2cf5ad770999);
  CHECK(hash_of("Nobody inspects the spammish repetition") == 0xfbcea83c8a378bf1);
  const std::vector<std::pair<size_t, uint64_t>> expected = {
      {1, 0x1f25c8d0bc1f4bb6},  {3, 0x31d2363f52e564c9},  {4, 0x9bb64b7d66ee9fda},  {7, 0x9a7b149959ce60d8},
      {8, 0xdab99d95c6f90092},  {11, 0x7a52cc9457cf1a1f}, {12, 0xd52e407833af5133}, {31, 0xa2aa5f33cc4a6119},
      {32, 0x23c3c17ef790fd97}, {33, 0x50a7cfc7ba588784}, {36, 0xc0b52b0dcc5e3f7f}, {63, 0xf1438f15b9ed16e9},
      {64, 0x2cd990a1beed6894}, {95, 0xf2dd88260e4c3ec6}, {101, 0x9be0b67bbc39759e}};
  for (const auto& [count, hash] : expected) {
    INFO(count << " bytes");
    CHECK(xxhash64(some_bytes(count)) == hash);
  }
}

TEST_CASE("xxhash64 does not depend on where the bytes lie in memory") {
  const auto bytes = some_bytes(101);
  for (size_t shift = 0; shift < 9; ++shift) {
    std::vector<std::byte> room(shift);
    room.insert(room.end(), bytes.begin(), bytes.end());
    CHECK(xxhash64(std::span(room).subspan(shift)) == xxhash64(bytes));
  }
}

TEST_CASE("xxhash64 changes with every bit of the input, and with its length") {
  for (const size_t count : {1, 13, 77}) {
    auto bytes = some_bytes(count);
    std::set<uint64_t> hashes = {xxhash64(bytes)};
    for (auto& byte : bytes) {
      for (int bit = 0; bit < 8; ++bit) {
        byte ^= std::byte{1} << bit;
        hashes.insert(xxhash64(bytes));
        byte ^= std::byte{1} << bit;
      }
    }
    bytes.push_back(std::byte{0});
    hashes.insert(xxhash64(bytes));
    CHECK(hashes.size() == 8 * count + 2);
  }
}
