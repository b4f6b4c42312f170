#include <lockstep/parallel/collectives/call.h>

#include <fmt/format.h>

#include <string_view>

#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

// FNV-1a.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
  }
  void add(uint64_t number) {
    for (int bits = 0; bits < 64; bits += 8) add_byte(static_cast<unsigned char>(number >> bits));
  }
  uint32_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 16777619u; }

  uint32_t value_ = 2166136261u;
};

}  // namespace

bool Call::operator==(const Call& other) const {
  return number == other.number && std::string_view(name) == other.name && root == other.root &&
         elements == other.elements && type == other.type;
}

std::string name_of(const Call& call) {
  return call.root < 0 ? call.name : fmt::format("{} from {}", call.name, call.root);
}

std::string text_of(const Call& call) {
  const auto from = call.root < 0 ? "" : fmt::format(" from rank {}", call.root);
  return fmt::format("{} {}{} of {} {}", call.name, call.number, from, with_commas(call.elements),
                     c10::getDtypeNames(call.type).first);
}

uint32_t digest_of(const Call& call) {
  Digest digest;
  digest.add(call.number);
  digest.add(std::string_view(call.name));
  digest.add(static_cast<uint64_t>(call.root));
  digest.add(static_cast<uint64_t>(call.elements));
  digest.add(static_cast<uint64_t>(call.type));
  return digest.value();
}

}  // namespace lockstep
