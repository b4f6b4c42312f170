#include <lockstep/parallel/collectives/channel.h>

#include <utility>

namespace lockstep {

std::vector<std::unique_ptr<Channel>> open_channels(ProcessGroup& group, int count) {
  return group.make_channels(count);
}

std::unique_ptr<Channel> open_channel(ProcessGroup& group) {
  auto channels = open_channels(group, 1);
  return std::move(channels.front());
}

}  // namespace lockstep
