#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/data/weights_hash.h>

using namespace lockstep;

// Python: hashlib.sha256(bytes).hexdigest(), for the bytes in the comments.
TEST_CASE("the hash of weights is the SHA-256 of their bytes") {
  const auto floats = torch::tensor({1.f, -2.f});
  // nothing
  CHECK(weights_sha256({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  // struct.pack("<2f", 1, -2)
  CHECK(weights_sha256({{"a", floats}}) ==
        "ee4ac73c2bd27756ab82780f27c73a7bc4d3f0bb6acb37e008bc27eccd7e588b");
  CHECK(weights_sha256({{"a", floats.clone().requires_grad_()}}) == weights_sha256({{"a", floats}}));
  // struct.pack("<q", 7)
  CHECK(weights_sha256({{"count", torch::tensor(7, torch::kInt64)}}) ==
        "aae89fc0f03e2959ae4d701a80cc3915918c950b159f6abb6c92c1433b1a8534");
}

TEST_CASE("the hash takes weights in the order of their names, and bfloat16 as it is") {
  const auto floats = torch::tensor({1.f, -2.f});
  const auto bf16 = torch::tensor({1.f, .5f}).to(torch::kBFloat16);
  // struct.pack("<2f", 1, -2) + bytes.fromhex("803f003f")
  const std::string floats_first = "ef1dbd0986bef46aeb101bbd6ac98952d27c09bca12635c04dfc87669dec82b7";
  // bytes.fromhex("803f003f") + struct.pack("<2f", 1, -2)
  const std::string bf16_first = "21a076a2b91fbb113fffe7c5cff43574d1e49e896c6b098b3b8a289c78b1d588";
  CHECK(weights_sha256({{"a", floats}, {"b", bf16}}) == floats_first);
  CHECK(weights_sha256({{"b", bf16}, {"a", floats}}) == floats_first);
  CHECK(weights_sha256({{"b", floats}, {"a", bf16}}) == bf16_first);
}

TEST_CASE("the hash reads tensors row by row, whatever their strides") {
  const auto rows = torch::arange(6, torch::kFloat32).view({2, 3});
  // struct.pack("<6f", 0, 3, 1, 4, 2, 5)
  CHECK(weights_sha256({{"a", rows.t()}}) ==
        "0c9d0bb54e4f5a0121543129f106617549c7ff2b34c6842c5a2e19186c5a7914");
  const auto images = torch::rand({2, 3, 4, 5});
  CHECK(weights_sha256({{"a", images.contiguous(torch::MemoryFormat::ChannelsLast)}}) ==
        weights_sha256({{"a", images}}));
}
