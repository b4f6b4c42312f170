#include <lockstep/app/launch/variables.h>

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <lockstep/parallel/world/launch_environment.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

using LaunchVariable = std::pair<std::string, std::string>;  // name, value

std::vector<LaunchVariable> named_values(const LaunchVariables& variables) {
  const auto process = fmt::format("{}", variables.process),
             processes = fmt::format("{}", variables.processes);
  return {{"RANK", process},
          {"LOCAL_RANK", process},
          {"WORLD_SIZE", processes},
          {"LOCAL_WORLD_SIZE", processes},
          {"MASTER_ADDR", variables.host},
          {"MASTER_PORT", fmt::format("{}", variables.port)},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", variables.run},
          {"TORCHELASTIC_RESTART_COUNT", fmt::format("{}", variables.restart)},
          {"TORCHELASTIC_MAX_RESTARTS", fmt::format("{}", variables.max_restarts)},
          {kLauncherVariable, "lockstep"},
          {kTokenVariable, variables.token}};
}

}  // namespace

std::vector<std::string> environment_with(const LaunchVariables& variables) {
  const auto own = named_values(variables);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const auto name = text.substr(0, text.find('='));
    const bool replaced =
        std::ranges::any_of(own, [&](const auto& variable) { return variable.first == name; });
    if (!replaced) environment.emplace_back(text);
  }
  for (const auto& [name, value] : own) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::string random_hex(size_t bytes) {
  std::vector<unsigned char> values(bytes);
  ssize_t count = 0;
  while ((count = ::getrandom(values.data(), values.size(), 0)) < 0 && errno == EINTR) continue;
  if (count != static_cast<ssize_t>(bytes)) {
    throw FailedError(fmt::format("no random bytes from the kernel: {}", errno_text(errno)));
  }
  std::string text;
  for (const auto value : values) text += fmt::format("{:02x}", value);
  return text;
}

}  // namespace lockstep
