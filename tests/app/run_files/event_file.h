// Reads TensorBoard's event files, for tests: only what lockstep writes.
#pragma once

#include <lockstep/tests/catch.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/tests/support/files.h>

namespace lockstep::testing {

using Scalars = std::map<std::string, float>;

struct EventRecord {
  double wall_time = 0;
  uint64_t step = 0;
  std::string version;
  Scalars scalars;
};

// The fields of a protocol buffer message, one after another.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view bytes() { return take(varint()); }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string_view take(size_t count) {
    REQUIRE(count <= bytes_.size());
    const auto taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view bytes_;
};

inline Scalars read_summary(Message summary) {
  Scalars scalars;
  while (!summary.empty()) {
    REQUIRE(summary.varint() == 0x0A);  // value
    Message value(summary.bytes());
    REQUIRE(value.varint() == 0x0A);  // tag
    const std::string tag(value.bytes());
    REQUIRE(value.varint() == 0x15);  // simple_value
    scalars[tag] = value.number<float>();
    CHECK(value.empty());
  }
  return scalars;
}

inline EventRecord read_event(Message event) {
  EventRecord record;
  while (!event.empty()) {
    const auto key = event.varint();
    if (key == 0x09) {
      record.wall_time = event.number<double>();
    } else if (key == 0x10) {
      record.step = event.varint();
    } else if (key == 0x1A) {
      record.version = event.bytes();
    } else {
      REQUIRE(key == 0x2A);
      record.scalars = read_summary(Message(event.bytes()));
    }
  }
  return record;
}

// Does not check the sums.
inline std::vector<EventRecord> records_in(const std::filesystem::path& path) {
  const auto bytes = read_file(path);
  std::vector<EventRecord> records;
  for (Message file(bytes); !file.empty();) {
    const auto length = file.number<uint64_t>();
    file.take(4);
    records.push_back(read_event(Message(file.take(length))));
    file.take(4);
  }
  return records;
}

}  // namespace lockstep::testing
