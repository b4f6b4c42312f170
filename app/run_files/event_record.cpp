#include <lockstep/app/run_files/event_record.h>

#include <array>
#include <bit>

namespace lockstep {
namespace {

constexpr std::string_view kEventVersion = "brain.Event:2";

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

// A record holds masked sums, so that a sum over bytes that hold their own sum is no special case.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8; }

template <class Bits>
std::string little_endian(Bits bits) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Bits); ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xFF);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

// Protocol buffers write a field as its number and wire type, then its value.
enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string key(int field, Wire wire) {
  return varint(static_cast<uint64_t>(field << 3 | static_cast<int>(wire)));
}

std::string bytes_field(int field, std::string_view bytes) {
  return key(field, Wire::kBytes) + varint(bytes.size()) + std::string(bytes);
}

// Event.wall_time and Event.step. A field of value 0 is left out.
std::string event_head(double wall_time, int64_t step) {
  auto event = key(1, Wire::kFixed64) + little_endian(std::bit_cast<uint64_t>(wall_time));
  if (step != 0) event += key(2, Wire::kVarint) + varint(static_cast<uint64_t>(step));
  return event;
}

std::string framed(std::string_view data) {
  const auto length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) + little_endian(masked_crc(data));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string version_record(double wall_time) {
  return framed(event_head(wall_time, 0) + bytes_field(3, kEventVersion));  // Event.file_version
}

std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& scalar : scalars) {
    const auto value = std::bit_cast<uint32_t>(static_cast<float>(scalar.value));
    // Summary.value, of Summary.Value.tag and simple_value
    summary += bytes_field(1, bytes_field(1, scalar.tag) + key(2, Wire::kFixed32) + little_endian(value));
  }
  return framed(event_head(wall_time, step) + bytes_field(5, summary));  // Event.summary
}

}  // namespace lockstep
