#include <lockstep/app/launch/process_output.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <ios>
#include <system_error>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/files/output_failure.h>

namespace lockstep {
namespace {

constexpr std::streamoff kLongestEnd = 64 * 1024;

}  // namespace

ProcessOutput::ProcessOutput() {
  std::error_code error;
  const auto where = std::filesystem::temp_directory_path(error);
  if (error) {
    throw OutputError(fmt::format("no folder for the processes' output: {}", error.message()),
                      "set TMPDIR to a folder that can be written");
  }
  auto name = (where / "lockstep-launch-XXXXXX").string();
  if (!::mkdtemp(name.data())) {
    throw OutputError(fmt::format("cannot make a folder for the processes' output in {}: {}", where.string(),
                                  errno_text(errno)),
                      "set TMPDIR to a folder that can be written");
  }
  folder_ = name;
}

ProcessOutput::~ProcessOutput() {
  std::error_code ignored;
  if (!kept_) std::filesystem::remove_all(folder_, ignored);
}

OwnedFd ProcessOutput::create(int process, int restart) const {
  const auto path = file(process, restart);
  OwnedFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  if (fd.get() < 0) {
    throw output_failure(fmt::format("cannot create {}", path.string()), errno);
  }
  return fd;
}

std::filesystem::path ProcessOutput::file(int process, int restart) const {
  const auto again = restart == 0 ? "" : fmt::format("restart-{}-", restart);
  return folder_ / fmt::format("{}process-{}.log", again, process);
}

std::vector<std::string> last_lines(const std::filesystem::path& file, size_t most) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  if (size <= 0) return {};
  in.seekg(std::max<std::streamoff>(0, size - kLongestEnd));
  std::string line;
  if (size > kLongestEnd) std::getline(in, line);  // the rest of a line that began earlier
  std::vector<std::string> lines;
  while (std::getline(in, line)) lines.push_back(line);
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

}  // namespace lockstep
