// Helpers for tests of collectives. Inputs are whole numbers whose sums are exact in every dtype, so the
// expected result is a sum of integers.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep::testing {

using Tensors = std::vector<torch::Tensor>;  // one per rank

// The algorithms of one process. (On CPUs auto is two_shot.)
inline const std::vector<Allreduce> kAlgorithms = [] {
  std::vector<Allreduce> all;
  for (const auto& local : local_algorithms()) all.push_back(local.allreduce);
  return all;
}();

inline std::unique_ptr<Communicator> cpu_communicator(int world, Allreduce algorithm = Allreduce::kTwoShot,
                                                      Trace* trace = nullptr) {
  return make_communicator({.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU),
                            .algorithm = algorithm,
                            .trace = trace});
}

// Every kind of dtype that is added. Whole numbers wrap around in the narrow ones of them.
inline constexpr torch::ScalarType kSummedTypes[] = {
    torch::kFloat32, torch::kFloat64,     torch::kBFloat16,     torch::kFloat16,
    torch::kInt64,   torch::kInt32,       torch::kInt16,        torch::kInt8,
    torch::kUInt8,   torch::kUInt16,      torch::kUInt32,       torch::kUInt64,
    torch::kBool,    torch::kComplexHalf, torch::kComplexFloat, torch::kComplexDouble};

// Dtypes that are only copied.
inline constexpr torch::ScalarType kCopiedTypes[] = {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2,
                                                     torch::kFloat8_e4m3fnuz, torch::kFloat8_e5m2fnuz,
                                                     torch::kFloat8_e8m0fnu};

inline bool has_16_bits(torch::ScalarType dtype) {
  return dtype == torch::kBFloat16 || dtype == torch::kFloat16 || dtype == torch::kComplexHalf;
}

// Different for each rank and element. The sum of eight is exact: in floating-point numbers of 16 bits (below
// 2^8), and in float with the larger numbers (below 2^24).
inline torch::Tensor whole_numbers(int rank, int64_t n, torch::ScalarType dtype) {  // (n) int64
  const int64_t modulus = has_16_bits(dtype) ? 29 : 1'000'003;
  return (torch::arange(n, torch::kInt64) * 7919 + rank * 104'729).remainder(modulus) - modulus / 2;
}

// A complex number's imaginary part is its negative real part plus 1. A bool is true for one number in three.
inline torch::Tensor input_of(int rank, int64_t n, torch::ScalarType dtype) {
  const auto numbers = whole_numbers(rank, n, dtype);
  if (dtype == torch::kBool) return numbers.remainder(3) == 0;
  if (!c10::isComplexType(dtype)) return numbers.to(dtype);
  return torch::complex(numbers.to(torch::kFloat64), (1 - numbers).to(torch::kFloat64)).to(dtype);
}

inline Tensors inputs(int world, int64_t n, torch::ScalarType dtype) {
  Tensors tensors;
  for (int rank = 0; rank < world; ++rank) tensors.push_back(input_of(rank, n, dtype));
  return tensors;
}

// The sum of whole numbers, which int64 and double hold exactly; of bools, whether one is true.
inline torch::Tensor exact_sum(const Tensors& tensors) {
  const auto dtype = tensors.front().scalar_type();
  const auto wide = c10::isComplexType(dtype)                          ? torch::kComplexDouble
                    : c10::isIntegralType(dtype, /*includeBool=*/true) ? torch::kInt64
                                                                       : torch::kFloat64;
  auto sum = torch::zeros_like(tensors.front(), wide);
  for (const auto& tensor : tensors) sum += tensor.to(wide);
  return sum.to(dtype);
}

// Bytes that differ between ranks and elements, as n elements of this dtype.
inline torch::Tensor any_bytes(int rank, int64_t n, torch::ScalarType dtype) {
  const auto size = n * static_cast<int64_t>(c10::elementSize(dtype));
  return ((torch::arange(size) * 7 + rank * 83).remainder(251)).to(torch::kByte).view(dtype);
}

// Waits until the watching thread finds an error. Returns null if it finds none.
inline std::exception_ptr await_error(const Endpoint& endpoint) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!endpoint.error() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return endpoint.error();
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 ||
          std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

inline bool all_are(const torch::Tensor& expected, const Tensors& results) {
  return std::all_of(results.begin(), results.end(),
                     [&](const auto& result) { return same_bits(result, expected); });
}

using Post = std::function<Work(Endpoint& endpoint, size_t rank)>;

// On all local replicas.
inline std::vector<Work> post_on_all(Communicator& communicator, const Post& post) {
  std::vector<Work> works;
  for (int local = 0; local < communicator.local_size(); ++local) {
    auto& endpoint = communicator.endpoint(local);
    works.push_back(post(endpoint, static_cast<size_t>(endpoint.rank())));
  }
  return works;
}

inline void run_on_all(Communicator& communicator, const Post& post) {
  for (auto& work : post_on_all(communicator, post)) work.wait();
}

inline void allreduce_all(Communicator& communicator, const Tensors& tensors) {
  run_on_all(communicator,
             [&](Endpoint& endpoint, size_t rank) { return endpoint.allreduce_sum(tensors[rank]); });
}

inline void allreduce_gradients_all(Communicator& communicator, const Tensors& tensors) {
  run_on_all(communicator,
             [&](Endpoint& endpoint, size_t rank) { return endpoint.allreduce_gradients(tensors[rank]); });
}

inline void broadcast_all(Communicator& communicator, const Tensors& tensors, int root) {
  run_on_all(communicator,
             [&](Endpoint& endpoint, size_t rank) { return endpoint.broadcast(tensors[rank], root); });
}

inline void gather_all(Communicator& communicator, const Tensors& tensors, const Tensors& gathered) {
  run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
    return endpoint.all_gather(tensors[rank], gathered[rank]);
  });
}

// For each rank a tensor that takes all of these, filled with something else.
inline Tensors room_for(const Tensors& tensors, double value = 77) {
  Tensors room;
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    room.push_back(torch::full_like(torch::stack(tensors), value));
  }
  return room;
}

// The exception of wait(); null if there is none.
inline std::exception_ptr error_of(Work& work) {
  try {
    work.wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// The message of wait()'s UsageError, which must have a hint.
inline std::string usage_error(Work& work) {
  const auto words = refusal_and_hint([&] { work.wait(); });
  if (words.empty()) return "no UsageError";
  return words.ends_with(" | ") ? "no hint" : words.substr(0, words.find(" | "));
}

}  // namespace lockstep::testing
