// The parts that the tests of safetensors files share: the file of Python's package, comparisons and errors.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>

#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/support/reference_path.h>

namespace lockstep::testing {

// Without its ending; tests/reference/safetensors_file.py has written it.
inline const std::string kReference = reference_path("safetensors_file");

inline bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && torch::equal(a, b);
}

// The error of this type that the function must throw.
template <class ErrorType, class Function>
ErrorType error_of(Function function) {
  try {
    function();
  } catch (const ErrorType& error) {
    return error;
  }
  FAIL("no such error");
  throw;
}

// Returns the message of the WeightsError that loading throws.
inline std::string failure(const std::filesystem::path& path) {
  const auto error = error_of<WeightsError>([&] { load_safetensors(path); });
  CHECK_THAT(error.message(), Catch::Matchers::StartsWith(path.string() + " "));
  CHECK_FALSE(error.hint().empty());
  return error.message();
}

}  // namespace lockstep::testing
