// Options of collectives, for errors.
#pragma once

#include <fmt/format.h>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/error.h>

namespace lockstep {

// "allreduce gloo"
inline ErrorText named_allreduce(Allreduce algorithm) {
  const auto name = name_of(kAllreduceNames, algorithm);
  return NamedOption{"allreduce", std::string(name), fmt::format("allreduce {}", name)};
}

// "compress bf16"
inline ErrorText named_compress(Compress compress) {
  const auto name = name_of(kCompressNames, compress);
  return NamedOption{"compress", std::string(name), fmt::format("compress {}", name)};
}

[[noreturn]] inline void refuse_compress_alone(Compress compress) {
  throw UsageError(
      named_compress(compress) + " rounds what travels between processes, but this process is alone",
      "leave it out, or start several processes");
}

}  // namespace lockstep
