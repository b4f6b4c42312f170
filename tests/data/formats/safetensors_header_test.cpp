// The header of the safetensors format, with texts written by hand.
#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/data/formats/safetensors_header.h>

using namespace lockstep;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kName = "folder/some.safetensors";

// Returns the message of the WeightsError that parsing throws. It must begin with the file's name and carry a
// hint.
std::string failure(const std::string& header, uint64_t data_bytes) {
  try {
    parse_safetensors_header(header, data_bytes, kName);
  } catch (const WeightsError& error) {
    CHECK_THAT(error.what(), Catch::Matchers::StartsWith(kName + " "));
    CHECK(error.exit_code() == ExitCode::kWeights);
    CHECK_FALSE(error.hint().empty());
    return error.what();
  }
  FAIL("no WeightsError");
  return {};
}

// The body of a tensor, and headers of one or two of them.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string header(const std::string& x) { return R"({"x":)" + x + "}"; }
std::string header(const std::string& x, const std::string& y) {
  return R"({"x":)" + x + R"(,"y":)" + y + "}";
}
std::string f32(const std::string& shape, const std::string& offsets) {
  return tensor(R"("F32")", shape, offsets);
}

struct Bad {
  std::string header;
  std::string message;  // a part of it
  uint64_t data_bytes = 24;
};

void check_each(const std::vector<Bad>& bads) {
  for (const auto& [text, message, data_bytes] : bads) {
    INFO(text.substr(0, 200));
    CHECK_THAT(failure(text, data_bytes), ContainsSubstring(message));
  }
}

}  // namespace

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
      {"F64", TensorDtype::kF64, 8},   {"F32", TensorDtype::kF32, 4}, {"F16", TensorDtype::kF16, 2},
      {"BF16", TensorDtype::kBF16, 2}, {"I64", TensorDtype::kI64, 8}, {"I32", TensorDtype::kI32, 4},
      {"I16", TensorDtype::kI16, 2},   {"I8", TensorDtype::kI8, 1},   {"U8", TensorDtype::kU8, 1},
      {"BOOL", TensorDtype::kBool, 1}};
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

TEST_CASE("each field that is missing, unknown, repeated or of another kind is named") {
  const std::string good = "[2,3]", at = "[0,24]";
  check_each({
      {header("1"), "has 1 under the name 'x', an object was expected"},
      {header("-1"), "has -1 under the name 'x'"},
      {header("1.5"), "has 1.5 under the name 'x'"},
      {header("null"), "has null under the name 'x'"},
      {header("false"), "has false under the name 'x'"},
      {header("\"F32\""), "has a string under the name 'x'"},
      {header("[]"), "has an array under the name 'x'"},
      {header("{}"), "has no dtype of tensor 'x'"},
      {header(R"({"shape":[2,3],"data_offsets":[0,24]})"), "has no dtype of tensor 'x'"},
      {header(R"({"dtype":"F32","data_offsets":[0,24]})"), "has no shape of tensor 'x'"},
      {header(R"({"dtype":"F32","shape":[2,3]})"), "has no data_offsets of tensor 'x'"},
      {header(R"({"dtype":"F32","strides":[3,1]})"),
       "has a field 'strides' in tensor 'x', only dtype, shape, data_offsets were expected"},
      {header(R"({"dtype":"F32","dtype":"F32"})"), "has dtype of tensor 'x' twice"},
      {header(R"({"shape":[],"shape":[]})"), "has shape of tensor 'x' twice"},
      {header(R"({"data_offsets":[0,1],"data_offsets":[0,1]})"), "has data_offsets of tensor 'x' twice"},
      {header(tensor("32", good, at)), "has 32 in dtype of tensor 'x', a string was expected"},
      {header(tensor("null", good, at)), "has null in dtype"},
      {header(tensor("[\"F32\"]", good, at)), "has an array in dtype"},
      {header(tensor("{}", good, at)), "has an object in dtype"},
      {header(tensor("\"F8_E4M3\"", good, at)),
       "has dtype 'F8_E4M3' in tensor 'x', one of I64 F64 F32 I32 BF16 "
       "F16 I16 I8 U8 BOOL was expected"},
      {header(tensor("\"f32\"", good, at)), "has dtype 'f32'"},
      {header(tensor("\"\"", good, at)), "has dtype ''"},
      {header(f32("6", at)), "has 6 in shape of tensor 'x', an array was expected"},
      {header(f32("\"2,3\"", at)), "has a string in shape of tensor 'x', an array was expected"},
      {header(f32("{}", at)), "has an object in shape"},
      {header(f32("null", at)), "has null in shape"},
      {header(f32("[[2,3]]", at)),
       "has an array in shape of tensor 'x', at most 64 whole numbers from 0 to 2^63 - 1"},
      {header(f32("[\"2\"]", at)), "has a string in shape"},
      {header(f32("[{}]", at)), "has an object in shape"},
      {header(f32("[null]", at)), "has null in shape"},
      {header(f32("[true]", at)), "has true in shape"},
      {header(f32("[-2,-3]", at)), "has -2 in shape"},
      {header(f32("[2.0,3]", at)), "has 2.0 in shape"},
      {header(f32("[6e0]", at)), "has 6e0 in shape"},
      {header(f32(good, "24")), "has 24 in data_offsets of tensor 'x', an array was expected"},
      {header(f32(good, "[]")), "has 0 numbers in data_offsets of tensor 'x', 2 were expected"},
      {header(f32(good, "[24]")), "has 1 numbers in data_offsets"},
      {header(f32(good, "[0,24,24]")), "has 3 numbers in data_offsets"},
      {header(f32(good, "[-24,0]")), "has -24 in data_offsets"},
      {header(f32(good, "[0,24.5]")), "has 24.5 in data_offsets"},
      {header(f32(good, "[0,\"24\"]")), "has a string in data_offsets"},
      {header(f32(good, "[0,18446744073709551616]")), "has 18446744073709551616 in data_offsets"},
  });
}

TEST_CASE("metadata other than strings by key, and keys that come twice, are errors") {
  const auto x = f32("[2,3]", "[0,24]");
  check_each({
      {R"({"__metadata__":null})", "has null under the name '__metadata__', an object was expected"},
      {R"({"__metadata__":[]})", "has an array under the name '__metadata__'"},
      {R"({"__metadata__":"text"})", "has a string under the name '__metadata__'"},
      {R"({"__metadata__":{"k":1}})", "has 1 as metadata 'k', a string was expected"},
      {R"({"__metadata__":{"k":null}})", "has null as metadata 'k'"},
      {R"({"__metadata__":{"k":["v"]}})", "has an array as metadata 'k'"},
      {R"({"__metadata__":{"k":{}}})", "has an object as metadata 'k'"},
      {R"({"__metadata__":{"k":"v","l":"v","k":"w"}})", "has the metadata 'k' twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "has the name '__metadata__' twice"},
      {R"({"x":)" + x + R"(,"x":)" + x + "}", "has the name 'x' twice"},
      {R"({"x":)" + x + R"(,"\u0078":)" + x + "}", "has the name 'x' twice"},  // the same name, escaped
  });
}

TEST_CASE("tensors must lie in the data one after the other, and fill it") {
  const auto x = f32("[2]", "[0,8]"), y = f32("[4]", "[8,24]");
  CHECK(parse_safetensors_header(header(x, y), 24, kName).tensors.size() == 2);
  CHECK(parse_safetensors_header(header(y, x), 24, kName).tensors.at(0).name == "y");
  check_each({
      {header(f32("[2,3]", "[24,0]")), "has data_offsets [24, 0] in tensor 'x', which end before they begin"},
      {header(f32("[2,3]", "[0,25]")),
       "has data_offsets [0, 25] in tensor 'x', but it is damaged or truncated to 24 bytes"},
      {header(f32("[]", "[9223372036854775804,9223372036854775807]")), "but it is damaged or truncated"},
      {header(f32("[5]", "[4,24]")), "which should begin at 0, without a gap"},  // a gap at the start
      {header(x, f32("[3]", "[12,24]")),
       "has data_offsets [12, 24] in tensor 'y', which should begin at 8"},  // in between
      {header(x, f32("[5]", "[4,24]")),
       "has data_offsets [4, 24] in tensor 'y', which should begin at 8"},  // an overlap
      {header(f32("[6]", "[0,24]"), f32("[6]", "[0,24]")),
       "tensor 'y', which should begin at 24"},  // the same bytes
      {header(f32("[6]", "[0,24]"), f32("[0]", "[4,4]")),
       "tensor 'y', which should begin at 24"},                 // empty, but inside
      {header(x), "has 24 bytes of data, its tensors take 8"},  // bytes left over
      {header(f32("[2,3]", "[0,20]")), "which is F32 [2, 3] and takes 24 bytes", 20},
      {header(f32("[7]", "[0,24]")), "which is F32 [7] and takes 28 bytes"},
      {header(f32("[]", "[0,24]")), "which is F32 [] and takes 4 bytes"},
      {header(f32("[0,6]", "[0,24]")), "which is F32 [0, 6] and takes 0 bytes"},
  });
}

TEST_CASE("shapes beyond what a tensor can have are errors") {
  const auto ones = [](int count) {
    std::string text = "[1";
    for (int i = 1; i < count; ++i) text += ",1";
    return text + "]";
  };
  const auto empty = "[0,0]";
  CHECK(parse_safetensors_header(header(f32(ones(64), "[0,4]")), 4, kName).tensors.at(0).shape.size() == 64);
  CHECK(parse_safetensors_header(header(f32("[0,2305843009213693951]", empty)), 0, kName).tensors.size() ==
        1);
  check_each({
      {header(f32(ones(65), "[0,4]")), "has more than 64 numbers in shape of tensor 'x'", 4},
      {header(f32("[9223372036854775808]", empty)), "has 9223372036854775808 in shape", 0},
      {header(f32("[18446744073709551616]", empty)), "has 18446744073709551616 in shape", 0},
      {header(f32("[2305843009213693952]", "[0,0]")), "overflows 63 bits", 0},  // 2^61 * 4 bytes
      {header(f32("[4294967296,4294967296]", empty)), "overflows 63 bits", 0},  // 2^64 values: 0 in 64 bits
      {header(f32("[0,2305843009213693952]", empty)), "overflows 63 bits", 0},  // a 0 does not hide it
      {header(f32("[4294967296,4294967296,0]", empty)), "overflows 63 bits", 0},
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

TEST_CASE("the layout of a file is that of the format's own writer") {
  const auto head = [](const std::vector<TensorEntry>& tensors, const TensorMetadata& metadata = {}) {
    return lay_out_safetensors(tensors, metadata).head;
  };
  CHECK(head({}) == "\x08\0\0\0\0\0\0\0{}      "s);
  CHECK(head({}, {{"framework", "pt"}}) ==
        "\x28\0\0\0\0\0\0\0{\"__metadata__\":{\"framework\":\"pt\"}}     "s);
  CHECK(head({{"attn.0", TensorDtype::kF32, {1, 2, 3}}}) ==
        "\x40\0\0\0\0\0\0\0{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}"s);
  CHECK(
      head({{"attn0", TensorDtype::kF32, {1, 1, 2, 3}}}) ==
      "\x48\0\0\0\0\0\0\0{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}       "s);
  // 300 bytes of text: the length takes a second byte.
  CHECK(head({}, {{"k", std::string(300, 'v')}}).substr(0, 9) == "\x48\x01\0\0\0\0\0\0{"s);
}

TEST_CASE("a layout sorts by dtype, the widest first, then by name") {
  const std::vector<TensorEntry> tensors = {
      {"flags", TensorDtype::kBool, {3}}, {"z", TensorDtype::kF32, {}},  {"half", TensorDtype::kF16, {1}},
      {"a", TensorDtype::kF32, {2}},      {"n", TensorDtype::kI64, {1}}, {"d", TensorDtype::kF64, {0, 3}}};
  const auto layout = lay_out_safetensors(tensors, {{"b", "2"}, {"a", "1"}});
  CHECK(layout.order == std::vector<size_t>{4, 5, 3, 1, 2, 0});
  CHECK(layout.head.size() % 8 == 0);
  const auto found = parse_safetensors_header(layout.head.substr(8), 8 + 0 + 8 + 4 + 2 + 3, kName);
  const std::vector<uint64_t> begins = {0, 8, 8, 16, 20, 22};
  REQUIRE(found.tensors.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHECK(found.tensors[i].name == tensors[layout.order[i]].name);
    CHECK(found.tensors[i].begin == begins[i]);
  }
  CHECK(found.metadata == TensorMetadata{{"a", "1"}, {"b", "2"}});
}

TEST_CASE("a file that could not be read is not laid out") {
  const auto refusal = [](const std::vector<TensorEntry>& tensors, const TensorMetadata& metadata = {}) {
    try {
      lay_out_safetensors(tensors, metadata);
    } catch (const OutputError& error) {
      return std::string(error.what());
    }
    return "none"s;
  };
  const TensorEntry x = {"x", TensorDtype::kF32, {2}};
  CHECK(refusal({x}) == "none");
  CHECK_THAT(refusal({x, {"y", TensorDtype::kF32, {}}, {"x", TensorDtype::kI64, {}}}),
             ContainsSubstring("tensor 'x': another one has the same name"));
  CHECK_THAT(refusal({{"__metadata__", TensorDtype::kF32, {2}}}),
             ContainsSubstring("'__metadata__': the format keeps"));
  CHECK_THAT(refusal({{"x", TensorDtype::kU8, std::vector<int64_t>(65, 1)}}),
             ContainsSubstring("more than 64 dimensions"));
  CHECK_THAT(refusal({{"x", TensorDtype::kF32, {0, int64_t{1} << 61}}}),
             ContainsSubstring("overflows 63 bits"));
  CHECK_THAT(refusal({{"a\xff", TensorDtype::kF32, {2}}}), ContainsSubstring("not UTF-8"));
  CHECK_THAT(refusal({x}, {{"k\xff", "v"}}), ContainsSubstring("not UTF-8"));
  CHECK_THAT(refusal({x}, {{"k", "v\xff"}}), ContainsSubstring("not UTF-8"));
  CHECK_THAT(refusal({}, {{"k", std::string(100'000'000, 'v')}}),
             ContainsSubstring("100000032 bytes") && ContainsSubstring("at most 100000000"));
}
