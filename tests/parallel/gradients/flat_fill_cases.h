// fill_flat() and fill_views() on the CPU (emulated) or a GPU.
#pragma once

#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <type_traits>
#include <vector>

#include <lockstep/parallel/gradients/flat_fill.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep::testing {

// Every number as its own piece's, with -0 among them.
inline torch::Tensor numbers_of_piece(int64_t size, int64_t piece, torch::ScalarType type) {
  auto numbers = (torch::arange(size, torch::kFloat64) * .37 + static_cast<double>(piece)).sin();
  if (size > 1) numbers[1] = -0.;
  return numbers.to(type);
}

// Pieces of these sizes lie behind each other in a buffer of sevens, each with a gap of at least two. Sources
// are, in turn, T, bfloat16 and none; all begin `offset` elements behind an aligned place, the places in the
// buffer too.
template <class T>
void check_flat_fill(torch::Device device, const std::vector<int64_t>& sizes, int64_t offset) {
  const auto type = std::is_same_v<T, float> ? torch::kFloat32 : torch::kFloat64;
  INFO((std::is_same_v<T, float> ? "float, " : "double, ")
       << sizes.size() << " pieces, the first of " << sizes.front() << ", " << offset << " off");
  std::vector<torch::Tensor> sources;
  std::vector<FlatPiece<T>> pieces;
  int64_t end = 16 + offset;
  for (const auto size : sizes) end += (size / 16 + 2) * 16;
  const auto buffer = torch::full({end}, 7, torch::dtype(type)).to(device);
  auto expected = torch::full({end}, 7, torch::dtype(type));
  int64_t begin = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto size = sizes[i];
    FlatPiece<T> piece{.to = static_cast<T*>(buffer.mutable_data_ptr()) + begin, .size = size};
    auto written = torch::zeros({size}, torch::dtype(type));
    if (i % 3 != 2) {
      const auto own = numbers_of_piece(size, static_cast<int64_t>(i), i % 3 == 0 ? type : torch::kBFloat16);
      written = own.to(type) + 0;
      const auto room = torch::zeros({size + offset}, own.options()).to(device);
      room.slice(0, offset).copy_(own);
      sources.push_back(room);
      piece.from = static_cast<const char*>(room.const_data_ptr()) + offset * room.element_size();
      piece.from_bf16 = i % 3 == 1;
    }
    expected.slice(0, begin, begin + size).copy_(written);
    pieces.push_back(piece);
    begin += (size / 16 + 2) * 16;
  }
  fill_flat(pieces, native_stream(device));
  const auto found = buffer.cpu();
  CHECK(found.equal(expected));
  CHECK(found.signbit().equal(expected.signbit()));  // no -0
}

template <class T>
void check_flat_fills(torch::Device device) {
  for (const int64_t offset : {0, 1, 4}) {
    for (const int64_t size : {0, 1, 3, 8, 15, 16, 17, 785, 4095, 4096, 4097, 9001}) {
      check_flat_fill<T>(device, {size}, offset);
      check_flat_fill<T>(device, {5, size, size, 0, size}, offset);
    }
  }
  // As many as one launch takes, one more, and several launches; only empty ones.
  for (const size_t count : {95, 96, 97, 200}) {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < count; ++i) sizes.push_back(static_cast<int64_t>(i * 37 % 50));
    check_flat_fill<T>(device, sizes, 0);
  }
  check_flat_fill<T>(device, std::vector<int64_t>(100, 0), 0);
}

}  // namespace lockstep::testing
