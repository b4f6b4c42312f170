#include <lockstep/parallel/collectives/gloo/c10d_error.h>

#include <c10/util/Exception.h>

namespace lockstep {
namespace {

// Gloo begins with "[/path/to/source.cc:12] ".
std::string without_source(std::string words) {
  const auto end = words.find("] ");
  if (words.starts_with("[/") && end != std::string::npos) words.erase(0, end + 2);
  return words;
}

}  // namespace

std::string c10d_words(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string words = torch_error ? torch_error->what_without_backtrace() : error.what();
  words = without_source(words.substr(0, words.find('\n')));
  if (const auto raised = words.find("Exception raised from"); raised != std::string::npos) {
    words.erase(raised);
  }
  while (!words.empty() && (words.back() == '.' || words.back() == ' ')) words.pop_back();
  return words;
}

std::string c10d_words(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return c10d_words(thrown);
  } catch (...) {
    return "unknown error";
  }
}

}  // namespace lockstep
