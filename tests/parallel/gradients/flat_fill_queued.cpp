// In place of the CUDA kernel: fills the buffer on the CPU, queued on a fake GPU's stream.
#include <lockstep/tests/parallel/gradients/flat_fill_queued.h>

#include <lockstep/parallel/gradients/flat_fill.h>

#include <vector>

#include <lockstep/support/bf16.h>
#include <lockstep/tests/support/fake_gpu/fake_stream.h>

namespace lockstep {
namespace testing {

std::atomic<int>& queued_flat_fills() {
  static std::atomic<int> count = 0;
  return count;
}

}  // namespace testing

namespace {

template <class T>
T number_at(const FlatPiece<T>& piece, int64_t i) {
  if (!piece.from) return 0;
  if (piece.from_bf16) return static_cast<T>(to_float(static_cast<const Bf16*>(piece.from)[i]));
  return static_cast<const T*>(piece.from)[i];
}

template <class T>
void queue_flat_fill(std::span<const FlatPiece<T>> pieces, CUstream_st* stream) {
  ++testing::queued_flat_fills();
  launch(*reinterpret_cast<testing::FakeStream*>(stream),
         [all = std::vector<FlatPiece<T>>(pieces.begin(), pieces.end())] {
           for (const auto& piece : all) {
             for (int64_t i = 0; i < piece.size; ++i) piece.to[i] = T{0} + number_at(piece, i);
           }
         });
}

}  // namespace

void fill_flat(std::span<const FlatPiece<float>> pieces, CUstream_st* stream) {
  queue_flat_fill(pieces, stream);
}

void fill_flat(std::span<const FlatPiece<double>> pieces, CUstream_st* stream) {
  queue_flat_fill(pieces, stream);
}

}  // namespace lockstep
