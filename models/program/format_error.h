// Errors in a program's file, before the message names the file.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::program {

// The functions that read parts of a file throw it; read_program_file() and Archive turn it into a
// WeightsError with the path. what() continues the sentence "program 'net.pt2' ...".
class FormatError : public std::runtime_error {
 public:
  explicit FormatError(const std::string& what, std::string hint = {})
      : std::runtime_error(what), hint_(std::move(hint)) {}

  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

// An error whose text names the operation and its line of Python.
class PlacedError : public FormatError {
 public:
  using FormatError::FormatError;
};

}  // namespace lockstep::program
