// The words of an exception of any kind, in one sentence.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include <lockstep/support/error.h>

namespace lockstep {

// The text of an exception: of lockstep's without the hint, of torch's without the backtrace.
inline std::string words_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->message();
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

// Tells torch's CPU allocator, which throws a general error, by its words.
inline bool is_out_of_host_memory(std::string_view words) {
  return words.find("DefaultCPUAllocator") != words.npos;
}

// Tells that the system cannot start another thread.
inline bool is_no_thread(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

}  // namespace lockstep
