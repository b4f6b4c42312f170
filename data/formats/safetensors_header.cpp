#include <lockstep/data/formats/safetensors_header.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kMostDimensions = 64;
constexpr const char* kMetadataKey = "__metadata__";

struct DtypeInfo {
  std::string_view name;
  int64_t bytes;  // of one value
};

// In the order of TensorDtype.
constexpr std::array<DtypeInfo, 19> kDtypes = {{{"U64", 8},
                                                {"I64", 8},
                                                {"F64", 8},
                                                {"C64", 8},
                                                {"F32", 4},
                                                {"U32", 4},
                                                {"I32", 4},
                                                {"BF16", 2},
                                                {"F16", 2},
                                                {"U16", 2},
                                                {"I16", 2},
                                                {"F8_E5M2FNUZ", 1},
                                                {"F8_E4M3FNUZ", 1},
                                                {"F8_E8M0", 1},
                                                {"F8_E4M3", 1},
                                                {"F8_E5M2", 1},
                                                {"I8", 1},
                                                {"U8", 1},
                                                {"BOOL", 1}}};

const DtypeInfo& info(TensorDtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

// Shortens a text from a file to a line for a message, and replaces control characters.
std::string shown(std::string_view text) {
  size_t length = std::min<size_t>(text.size(), 60);
  while (length > 0 && length < text.size() && (text[length] & 0xc0) == 0x80) --length;  // whole characters
  std::string line(text.substr(0, length));
  const auto disturbs = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::replace_if(line.begin(), line.end(), disturbs, '?');
  return length < text.size() ? line + "..." : line;
}

// Takes the JSON token by token and accepts only what the format knows. So it never holds anything else in
// memory, however deep or long, and it notices a key that comes twice.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(const std::string& file) : file_(file) {}

  SafetensorsHeader header;

  bool null() override {
    if (place_ == Place::kHeader && name_ == kMetadataKey) return true;  // the format's own reader takes it
    unexpected("null");
  }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { unexpected(std::to_string(value)); }  // below 0
  bool number_float(double, const std::string& text) override { unexpected(shown(text)); }
  bool binary(binary_t&) override { unexpected("bytes"); }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kNumbers || value > INT64_MAX) unexpected(std::to_string(value));
    if (numbers_.size() == kMostDimensions) unexpected(fmt::format("more than {} numbers", kMostDimensions));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata.emplace(field_, std::move(text));
    } else if (place_ == Place::kTensor && field_ == "dtype") {
      header.tensors.back().dtype = dtype(text);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader && name_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kHeader) {
      place_ = Place::kTensor;
      header.tensors.push_back({name_});
      fields_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::kHeader) {
      if (!names_.insert(text).second) fail("has the name '{}' twice", shown(text));
      name_ = text;
      return true;
    }
    field_ = text;
    if (place_ == Place::kMetadata && header.metadata.contains(text)) {
      fail("has the metadata '{}' twice", shown(text));
    }
    if (place_ == Place::kTensor && std::ranges::count(kFields, text) == 0) {
      fail("has a field '{}' in tensor '{}', only {} were expected", shown(text), shown(name_),
           fmt::join(kFields, ", "));
    }
    if (place_ == Place::kTensor && !fields_.insert(text).second) {
      fail("has {} of tensor '{}' twice", text, shown(name_));
    }
    return true;
  }

  bool end_object() override {
    for (const auto field : kFields) {
      if (place_ == Place::kTensor && !fields_.contains(field)) {
        fail("has no {} of tensor '{}'", field, shown(name_));
      }
    }
    place_ = Place::kHeader;  // also at the end of the text
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") unexpected("an array");
    place_ = Place::kNumbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    auto& tensor = header.tensors.back();
    if (field_ == "shape") {
      tensor.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      fail("has {} numbers in data_offsets of tensor '{}', 2 were expected", numbers_.size(), shown(name_));
    }
    tensor.begin = static_cast<uint64_t>(numbers_[0]);
    tensor.end = static_cast<uint64_t>(numbers_[1]);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    not_json(position);
  }
  [[noreturn]] void not_json(size_t position) const {
    fail("is damaged: its header is not JSON in UTF-8 from byte {} on", position);
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kNumbers };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  TensorDtype dtype(const std::string& text) const {
    std::vector<std::string_view> names;
    for (const auto& known : kDtypes) {
      if (text == known.name) return static_cast<TensorDtype>(names.size());
      names.push_back(known.name);
    }
    fail("has dtype '{}' in tensor '{}', one of {} was expected", shown(text), shown(name_),
         fmt::join(names, " "));
  }

  [[noreturn]] void unexpected(const std::string& found) const {
    if (place_ == Place::kHeader)
      fail("has {} under the name '{}', an object was expected", found, shown(name_));
    if (place_ == Place::kMetadata)
      fail("has {} as metadata '{}', a string was expected", found, shown(field_));
    const auto expected = place_ == Place::kNumbers ? "at most 64 whole numbers from 0 to 2^63 - 1 were"
                          : field_ == "dtype"       ? "a string was"
                                                    : "an array was";
    fail("has {} in {} of tensor '{}', {} expected", found, field_, shown(name_), expected);
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> what, Args&&... args) const {
    throw safetensors_error(file_, fmt::format(what, std::forward<Args>(args)...));
  }

  const std::string& file_;
  Place place_ = Place::kStart;
  std::string name_, field_;  // the last keys
  std::unordered_set<std::string> names_;
  std::set<std::string, std::less<>> fields_;  // of this tensor
  std::vector<int64_t> numbers_;
};

// Returns nothing if the size leaves 63 bits, also with a dimension of 0, since torch multiplies the others
// into strides.
std::optional<uint64_t> bytes_of_values(const TensorEntry& tensor) {
  int64_t bytes = info(tensor.dtype).bytes;
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dimension, 1), &bytes)) return {};
  }
  return std::ranges::count(tensor.shape, 0) > 0 ? 0 : static_cast<uint64_t>(bytes);
}

// Tensors must be in order of their offsets.
void check_offsets(std::span<const TensorEntry> tensors, uint64_t data_bytes, const std::string& file) {
  uint64_t covered = 0;
  for (const auto& tensor : tensors) {
    const auto refuse = [&](const std::string& why) {
      throw safetensors_error(file, fmt::format("has data_offsets [{}, {}] in tensor '{}', {}", tensor.begin,
                                                tensor.end, shown(tensor.name), why));
    };
    if (tensor.end < tensor.begin) refuse("which end before they begin");
    if (tensor.end > data_bytes)
      refuse(fmt::format("but it is damaged or truncated to {} bytes of data", data_bytes));
    if (tensor.begin != covered)
      refuse(fmt::format("which should begin at {}, without a gap or an overlap", covered));
    const auto bytes = bytes_of_values(tensor);
    const auto type = fmt::format("{} [{}]", info(tensor.dtype).name, fmt::join(tensor.shape, ", "));
    if (!bytes) refuse(fmt::format("which is {} and overflows 63 bits", type));
    if (tensor.end - tensor.begin != *bytes)
      refuse(fmt::format("which is {} and takes {} bytes", type, *bytes));
    covered = tensor.end;
  }
  if (covered == data_bytes) return;
  throw safetensors_error(file,
                          fmt::format("has {} bytes of data, its tensors take {}", data_bytes, covered));
}

// Returns the text as JSON, in quotes.
std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw OutputError(fmt::format("cannot save '{}': it is not UTF-8", shown(text)));
  }
}

void check_can_be_read(std::span<const TensorEntry> tensors) {
  std::set<std::string_view> names;
  for (const auto& tensor : tensors) {
    const auto refuse = [&](const char* why) {
      throw OutputError(fmt::format("cannot save tensor '{}': {}", shown(tensor.name), why));
    };
    if (tensor.name == kMetadataKey) refuse("the format keeps that name for itself");
    if (!names.insert(tensor.name).second) refuse("another one has the same name");
    if (tensor.shape.size() > kMostDimensions) refuse("it has more than 64 dimensions");
    if (!bytes_of_values(tensor)) refuse("its shape overflows 63 bits");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& header, uint64_t data_bytes,
                                           const std::string& file) {
  if (!header.starts_with('{')) {
    const auto found = header.empty() ? "nothing" : fmt::format("byte {:02x}", header[0] & 0xff);
    throw safetensors_error(
        file, fmt::format("is not a safetensors file: its header begins with {}, '{{' was expected", found));
  }
  HeaderParser parser(file);
  // nlohmann::json would take a zero byte for the end of the text.
  if (const auto zero = header.find('\0'); zero != std::string::npos) parser.not_json(zero + 1);
  nlohmann::json::sax_parse(header, &parser);
  auto& tensors = parser.header.tensors;
  std::ranges::sort(tensors, {}, [](const auto& t) { return std::tie(t.begin, t.end, t.name); });
  check_offsets(tensors, data_bytes, file);
  return std::move(parser.header);
}

SafetensorsLayout lay_out_safetensors(std::span<const TensorEntry> tensors, const TensorMetadata& metadata) {
  check_can_be_read(tensors);
  SafetensorsLayout layout = {{}, std::vector<size_t>(tensors.size())};
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::ranges::sort(layout.order, {}, [&](size_t i) { return std::tie(tensors[i].dtype, tensors[i].name); });

  std::vector<std::string> items, texts;
  for (const auto& [key, text] : metadata) texts.push_back(json_text(key) + ":" + json_text(text));
  if (!texts.empty()) items.push_back(fmt::format("\"{}\":{{{}}}", kMetadataKey, fmt::join(texts, ",")));
  uint64_t begin = 0;
  for (const size_t i : layout.order) {
    const auto& [name, dtype, shape, unused_begin, unused_end] = tensors[i];
    const uint64_t end = begin + bytes_of_values(tensors[i]).value();
    items.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_text(name),
                                info(dtype).name, fmt::join(shape, ","), begin, end));
    begin = end;
  }
  auto header = fmt::format("{{{}}}", fmt::join(items, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kSafetensorsMostHeaderBytes) {
    throw OutputError(fmt::format("cannot save names and metadata of {} bytes: the format allows at most {}",
                                  header.size(), kSafetensorsMostHeaderBytes));
  }
  for (uint64_t length = header.size(), i = 0; i < 8; ++i) layout.head += static_cast<char>(length >> 8 * i);
  layout.head += header;
  return layout;
}

WeightsError safetensors_error(const std::string& file, const std::string& what) {
  return WeightsError(
      file + " " + what,
      "save or fetch it again; weights in another format (.pt, .bin) must be converted first");
}

}  // namespace lockstep
