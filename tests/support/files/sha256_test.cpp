#include <lockstep/tests/catch.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/support/files/sha256.h>

using namespace lockstep;

namespace {

std::string sha256_of(std::string_view text, size_t part) {
  Sha256 hash;
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t begin = 0; begin < bytes.size(); begin += part) {
    hash.update(bytes.subspan(begin, std::min(part, bytes.size() - begin)));
  }
  return hash.hex();
}

}  // namespace

// NIST's examples for FIPS 180-4; "" and the million come from its test vectors (SHAVS).
TEST_CASE("SHA-256 gives the digests of FIPS 180-4's examples") {
  CHECK(sha256_of("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_of("abc", 64) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 64) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_of(std::string(1'000'000, 'a'), 4096) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on how the bytes are cut") {
  const std::string million(1'000'000, 'a');
  for (const size_t part : {1, 55, 56, 63, 64, 65, 127, 128, 1'000'000}) {
    INFO("parts of " << part);
    CHECK(sha256_of(million, part) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

// Python: hashlib.sha256(b"x" * n).hexdigest(), for lengths around those at which the padding needs another
// block.
TEST_CASE("SHA-256 pads every length correctly") {
  CHECK(sha256_of(std::string(55, 'x'), 64) ==
        "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  CHECK(sha256_of(std::string(56, 'x'), 64) ==
        "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  CHECK(sha256_of(std::string(63, 'x'), 64) ==
        "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  CHECK(sha256_of(std::string(64, 'x'), 64) ==
        "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  CHECK(sha256_of(std::string(119, 'x'), 64) ==
        "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
  CHECK(sha256_of(std::string(120, 'x'), 64) ==
        "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98");
}
