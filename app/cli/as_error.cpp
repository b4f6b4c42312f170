#include <lockstep/app/cli/as_error.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <lockstep/support/cuda/fault.h>
#include <lockstep/support/start_thread.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

constexpr const char* kLessMemory =
    "use a smaller --batch-size, fewer replicas on one device (--devices), or less data (--limit-train)";

// Options whose flag has another name, or which are a value of another flag.
constexpr std::pair<std::string_view, std::string_view> kOtherFlags[] = {{"auto_split", "split auto"},
                                                                         {"bucket_bytes", "bucket-mb"}};

// "--cuda-graph auto" for {.key = "cuda_graph", .value = "auto"}
std::string flag_of(const NamedOption& option) {
  auto name = option.key;
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& [key, flag] : kOtherFlags) {
    if (option.key == key) name = flag;
  }
  return fmt::format("--{}{}{}", name, option.value.empty() ? "" : " ", option.value);
}

Error with_flags(const Error& error) {
  return {error.exit_code(), error.message_text().words(flag_of), error.hint_text().words(flag_of)};
}

Error torch_error(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return {ExitCode::kMemory, what, kLessMemory};
  if (const auto* accelerator = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    const auto first_line = what.substr(0, what.find('\n'));  // the others are advice for torch's developers
    return with_flags(explain({.code = accelerator->get_error_code(), .words = first_line}));
  }
  if (!is_out_of_host_memory(what)) return {ExitCode::kFailed, what};
  // The text begins with a source location.
  const auto details = what.substr(std::min(what.find("you tried"), what.size()));
  return {ExitCode::kMemory, fmt::format("out of memory: {}", details), kLessMemory};
}

}  // namespace

Error as_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return with_flags(error);
  } catch (const c10::Error& error) {
    return torch_error(error);
  } catch (const std::bad_alloc&) {
    return {ExitCode::kMemory, "out of memory", kLessMemory};
  } catch (const std::system_error& error) {
    if (!is_no_thread(error)) return {ExitCode::kFailed, error.what()};
    return {ExitCode::kMemory, kNoThread, kNoThreadHint};
  } catch (const std::exception& error) {
    return {ExitCode::kFailed, error.what()};
  }
}

}  // namespace lockstep
