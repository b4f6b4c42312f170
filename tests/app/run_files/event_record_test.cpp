// TensorBoard's records, byte by byte.
#include <lockstep/tests/catch.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/app/run_files/event_record.h>

using namespace lockstep;

namespace {

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("CRC-32C gives the published sums") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) rising += byte;
  CHECK(crc32c(rising) == 0x46DD794E);
}

// The expected bytes were written by the Python package tensorboard 2.21: event_pb2.Event and
// summary.writer.record_writer.RecordWriter.
TEST_CASE("event records are those of the real package") {
  CHECK(hex(version_record(1700000000.25)) ==
        "1800000000000000a37f4b22"
        "0900001040fc54d9411a0d627261696e2e4576656e743a32"
        "338d2fe9");
  const std::array scalars{Scalar{"train/loss", 2.302585}, Scalar{"lr", .2}};
  CHECK(hex(scalars_record(1700000000.25, 300, scalars)) ==
        "2c00000000000000f4aecc45"
        "0900001040fc54d94110ac022a1e0a110a0a747261696e2f6c6f7373158d5d13400a090a026c7215cdcc4c3e"
        "a9eefd2b");
  // A step beyond 32 bits, and a value of 0.
  CHECK(hex(scalars_record(1.5, 5'000'000'000, std::array{Scalar{"test/loss", 0}})) ==
        "2300000000000000b09f7743"
        "09000000000000f83f1080e497d0122a120a100a09746573742f6c6f73731500000000"
        "26ac3e6a");
  // Step 0 is left out; lengths beyond 127 take two bytes.
  const std::string tag(150, 'x');
  CHECK(hex(scalars_record(1.5, 0, std::array{Scalar{tag, 1}})) ==
        "ad000000000000003f295218"
        "09000000000000f83f2aa1010a9e010a9601" +
            hex(tag) + "150000803fba86f1a9");
}
