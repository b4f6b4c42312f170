// The header of the safetensors format, with texts written by hand: JSON in UTF-8 of any length, and what
// else it may be. safetensors_header_fields_test.cpp tests the fields.
#include <lockstep/tests/catch.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/formats/header_texts.h>

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a header tells each tensor's name, dtype, shape and place, in order of the data") {
  const std::string text =
      R"( "b": {"shape": [2, 3], "data_offsets": [8, 32], "dtype": "F32"},)"
      R"("__metadata__":{"key":"text","":"\u00fc \"quoted\"\n"},)"
      R"("":{"dtype":"BOOL","shape":[0,3],"data_offsets":[8,8]},)"
      "\n\t\"n\u00e4\\u00e4\\ud83d\\ude00\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}";
  const auto found = parse_safetensors_header("{" + text + "}    ", 32, kName);
  REQUIRE(found.tensors.size() == 3);
  const auto& [first, second, third] = std::tie(found.tensors[0], found.tensors[1], found.tensors[2]);
  CHECK(first.name == "n\u00e4\u00e4\U0001f600");
  CHECK(first.dtype == TensorDtype::kI64);
  CHECK(first.shape.empty());
  CHECK((first.begin == 0 && first.end == 8));
  CHECK(second.name.empty());
  CHECK(second.dtype == TensorDtype::kBool);
  CHECK(second.shape == std::vector<int64_t>{0, 3});
  CHECK((second.begin == 8 && second.end == 8));
  CHECK(third.name == "b");
  CHECK(third.dtype == TensorDtype::kF32);
  CHECK(third.shape == std::vector<int64_t>{2, 3});
  CHECK((third.begin == 8 && third.end == 32));
  CHECK(found.metadata == TensorMetadata{{"key", "text"}, {"", "\u00fc \"quoted\"\n"}});
}

TEST_CASE("a header may have no tensors") {
  for (const char* text : {"{}", "{}      ", R"({"__metadata__":{}})"}) {
    const auto found = parse_safetensors_header(text, 0, kName);
    CHECK(found.tensors.empty());
    CHECK(found.metadata.empty());
    CHECK_THAT(failure(text, 1), ContainsSubstring("has 1 bytes of data, its tensors take 0"));
  }
}

TEST_CASE("each dtype has its size") {
  const std::vector<std::tuple<std::string, TensorDtype, uint64_t>> dtypes = {
      {"F64", TensorDtype::kF64, 8},
      {"F32", TensorDtype::kF32, 4},
      {"F16", TensorDtype::kF16, 2},
      {"BF16", TensorDtype::kBF16, 2},
      {"I64", TensorDtype::kI64, 8},
      {"I32", TensorDtype::kI32, 4},
      {"I16", TensorDtype::kI16, 2},
      {"I8", TensorDtype::kI8, 1},
      {"U8", TensorDtype::kU8, 1},
      {"BOOL", TensorDtype::kBool, 1},
      {"U64", TensorDtype::kU64, 8},
      {"U32", TensorDtype::kU32, 4},
      {"U16", TensorDtype::kU16, 2},
      {"C64", TensorDtype::kC64, 8},
      {"F8_E5M2", TensorDtype::kF8E5M2, 1},
      {"F8_E4M3", TensorDtype::kF8E4M3, 1},
      {"F8_E8M0", TensorDtype::kF8E8M0, 1},
      {"F8_E4M3FNUZ", TensorDtype::kF8E4M3Fnuz, 1},
      {"F8_E5M2FNUZ", TensorDtype::kF8E5M2Fnuz, 1}};
  for (const auto& [name, dtype, size] : dtypes) {
    INFO(name);
    const auto text = [&](uint64_t bytes) {
      return header(tensor("\"" + name + "\"", "[5,3]", "[0," + std::to_string(bytes) + "]"));
    };
    const auto found = parse_safetensors_header(text(15 * size), 15 * size, kName);
    CHECK(found.tensors.at(0).dtype == dtype);
    const auto takes = name + " [5, 3] and takes " + std::to_string(15 * size) + " bytes";
    CHECK_THAT(failure(text(15 * size + 1), 15 * size + 1), ContainsSubstring(takes));
    CHECK_THAT(failure(text(15 * size - 1), 15 * size - 1), ContainsSubstring(takes));
  }
}

TEST_CASE("a header that is not JSON in UTF-8 is an error that says where") {
  const auto good = header(f32("[2,3]", "[0,24]"));
  check_each({
      {"", "begins with nothing, '{' was expected"},
      {"[]", "begins with byte 5b, '{' was expected"},
      {" " + good, "begins with byte 20"},
      {"\xef\xbb\xbf" + good, "begins with byte ef"},
      {"\"x\"", "begins with byte 22"},
      {"{", "not JSON in UTF-8 from byte"},
      {"{\"x", "not JSON in UTF-8 from byte"},
      {"{x:1}", "from byte 2 on"},
      {"{'x':1}", "from byte 2 on"},
      {"{\"x\" 1}", "from byte 6 on"},
      {good + "x", "from byte " + std::to_string(good.size() + 1)},
      {good + good, "from byte " + std::to_string(good.size() + 1)},
      {good + "\0"s, "from byte " + std::to_string(good.size() + 1)},
      {good + "\0garbage"s, "from byte " + std::to_string(good.size() + 1)},
      {"{}/* comment */", "from byte 3 on", 0},
      {"{},", "from byte 3 on", 0},
      {header(f32("[2,3,]", "[0,24]")), "not JSON"},
      {header(f32("[NaN]", "[0,24]")), "not JSON"},
      {header(f32("[02,3]", "[0,24]")), "not JSON"},
      {header(f32("[1e999]", "[0,24]")), "not JSON"},
      {header(f32("[0x2]", "[0,24]")), "not JSON"},
      {"{\"a\xff\":1}", "from byte 4 on"},                       // no UTF-8
      {"{\"a\xc0\x80\":1}", "from byte 4 on"},                   // an overlong form
      {"{\"a\xed\xa0\x80\":1}", "from byte 5 on"},               // a surrogate
      {"{\"a\xe2\x82\":1}", "from byte 6 on"},                   // cut short
      {R"({"a\ud800":1})", "not JSON"},                          // half a surrogate pair
      {"{\"a\nb\":1}", "from byte 4 on"},                        // a bare control character
      {"{\"__metadata__\":{\"k\":\"v\"} \"x\":1}", "not JSON"},  // a comma is missing
  });
}

TEST_CASE("a deep or endless header is refused where it leaves the format") {
  constexpr size_t kMuch = 20'000'000;
  CHECK_THAT(failure("{\"x\":" + std::string(kMuch, '['), 0),
             ContainsSubstring("has an array under the name 'x'"));
  std::string objects = "{\"x\":";
  for (size_t i = 0; i < 100'000; ++i) objects += "{\"dtype\":";
  CHECK_THAT(failure(objects, 0), ContainsSubstring("has an object in dtype of tensor 'x'"));
  std::string numbers = R"({"x":{"shape":[)";
  numbers.reserve(kMuch);
  while (numbers.size() < kMuch) numbers += "1,";
  CHECK_THAT(failure(numbers, 0), ContainsSubstring("has more than 64 numbers in shape"));
}

TEST_CASE("a name in a message neither fills the screen nor disturbs the terminal") {
  CHECK_THAT(failure(R"({"a\u001b[31m\u007fb\u0000":1})", 0), ContainsSubstring("'a?[31m?b?'"));
  const std::string fifty_nine(59, 'a');
  CHECK_THAT(failure("{\"" + fifty_nine + "bcd\":1}", 0), ContainsSubstring("'" + fifty_nine + "b...'"));
  CHECK_THAT(failure("{\"" + fifty_nine + "\u20acd\":1}", 0),
             ContainsSubstring("'" + fifty_nine + "...'"));  // no half character
}

TEST_CASE("a header with a changed byte or cut is an error or another valid header") {
  const std::string whole =
      R"({"__metadata__":{"k":"v\n"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("y":{"dtype":"BF16","shape":[0],"data_offsets":[24,24]}} )";
  REQUIRE(parse_safetensors_header(whole, 24, kName).tensors.size() == 2);
  for (size_t size = 0; size < whole.size() - 1; ++size) failure(whole.substr(0, size), 24);
  size_t read = 0, refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      try {
        const auto found = parse_safetensors_header(changed, 24, kName);
        read += found.tensors.size() == 2 && found.tensors[1].end == 24 && found.tensors[0].end == 24;
      } catch (const WeightsError&) {
        ++refused;
      }
    }
  }
  CHECK(read + refused == whole.size() * 256);
  CHECK(read > whole.size());  // each unchanged byte, and other names
}
