// The fields of a safetensors header: kinds, metadata, places in the data and shapes.
#include <lockstep/tests/catch.h>
#include <string>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/tests/data/formats/header_texts.h>

using namespace lockstep;
using namespace lockstep::testing;

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
      {header(tensor("\"F4\"", good, at)),
       "has dtype 'F4' in tensor 'x', one of U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E5M2FNUZ "
       "F8_E4M3FNUZ F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 BOOL was expected"},
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
      {R"({"__metadata__":null,"__metadata__":{}})", "has the name '__metadata__' twice"},
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

TEST_CASE("metadata may be null, as the format's own reader takes it, and tensors follow") {
  const auto text = R"({"__metadata__":null,"x":)" + f32("[2,3]", "[0,24]") + "}";
  const auto found = parse_safetensors_header(text, 24, kName);
  CHECK(found.metadata.empty());
  REQUIRE(found.tensors.size() == 1);
  CHECK(found.tensors[0].name == "x");
}
