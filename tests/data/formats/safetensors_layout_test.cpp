// The layout of a safetensors file that is to be written: its header, and the order of the tensors.
#include <lockstep/tests/catch.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/formats/header_texts.h>

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

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
      return error.message();
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
