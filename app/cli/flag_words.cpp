#include <lockstep/app/cli/flag_words.h>

#include <string_view>
#include <utility>

namespace lockstep {
namespace {

struct Words {
  std::string_view library;
  std::string_view flag;
};

constexpr Words kWords[] = {
    {"CudaGraph::kAuto", "--cuda-graph auto"},
    {"CudaGraph::kOff", "--cuda-graph off"},
    {"Compress::kNone", "--compress none"},
    {"use allreduce ", "use --allreduce "},
    {"use the device list ", "use --devices "},
    {"use batch size ", "use --batch-size "},
    {"use a smaller batch size", "use a smaller --batch-size"},
    {"replace it with overwrite = true", "replace it with --overwrite"},
    {"give the rank, the world size and the master together",
     "give --rank, --world-size and --master together"},
    {"leave out the rank, the world size and the master", "leave out --rank, --world-size and --master"},
    {"give the master's address: ", "give --master HOST:PORT: "},
    {"give each process the address on which it is to listen",
     "give each process --listen ADDRESS, with the address that others reach"},
    {"give an address of this host to listen on", "give --listen an address of this host"}};

}  // namespace

std::string with_flags(std::string hint) {
  for (const auto& words : kWords) {
    for (size_t at = 0; (at = hint.find(words.library, at)) != std::string::npos; at += words.flag.size()) {
      hint.replace(at, words.library.size(), words.flag);
    }
  }
  return hint;
}

}  // namespace lockstep
