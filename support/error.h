// Errors: what happened, what to do about it, and the program's exit code.
//
// The library throws these; only the program turns them into an exit code. message() is one sentence without
// a full stop at its end, and names both what was found and what was expected. hint() says what to do; it may
// be empty. what() has both, so that a handler of std::exception shows them: "message\nhint: hint". Options
// that they name are data (error_text.h), so that a program can write its own names for them.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/error_text.h>

namespace lockstep {

// The program's exit codes (docs/cli.md).
enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,       // the run failed
  kUsage = 2,        // option, value or combination of options
  kData = 3,         // data: missing, damaged, does not fit the model
  kWeights = 4,      // weights or checkpoint
  kDevice = 5,       // device or communication set-up
  kNumeric = 6,      // loss is NaN or infinite
  kOutput = 7,       // path not writable, file exists and may not be replaced, disk full
  kMemory = 8,       // out of memory
  kPeer = 10,        // a peer rank died or did not answer, or a collective failed
  kHangup = 129,     // SIGHUP
  kInterrupt = 130,  // SIGINT
  kTerminate = 143,  // SIGTERM
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, ErrorText message, ErrorText hint = {})
      : std::runtime_error(message.words() + (hint.words().empty() ? "" : "\nhint: " + hint.words())),
        code_(code),
        message_(std::move(message)),
        hint_(std::move(hint)) {}

  ExitCode exit_code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_.words(); }
  const std::string& hint() const noexcept { return hint_.words(); }

  // The same texts with their options as data.
  const ErrorText& message_text() const noexcept { return message_; }
  const ErrorText& hint_text() const noexcept { return hint_; }

  // The keys of the options that the message names, such as {"invariant", "accumulate"}: what is wrong.
  std::vector<std::string> options() const { return message_.keys(); }

 private:
  ExitCode code_;
  ErrorText message_;
  ErrorText hint_;
};

// One type per exit code, so that callers of the library can catch what they can handle.
template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(ErrorText message, ErrorText hint = {})
      : Error(kCode, std::move(message), std::move(hint)) {}
};

using FailedError = ErrorOf<ExitCode::kFailed>;
using UsageError = ErrorOf<ExitCode::kUsage>;
using DataError = ErrorOf<ExitCode::kData>;
using WeightsError = ErrorOf<ExitCode::kWeights>;
using DeviceError = ErrorOf<ExitCode::kDevice>;
using NumericError = ErrorOf<ExitCode::kNumeric>;
using OutputError = ErrorOf<ExitCode::kOutput>;
using MemoryError = ErrorOf<ExitCode::kMemory>;
using PeerError = ErrorOf<ExitCode::kPeer>;

// The replicas do not have the same weights. Every process throws it after the same step, with the same text.
class OutOfSyncError : public FailedError {
 public:
  using FailedError::FailedError;
};

}  // namespace lockstep
