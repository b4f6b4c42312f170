#include <lockstep/tests/catch.h>

#include <filesystem>

#include <lockstep/app/train/checkpoint/checkpoint_memory.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/mapped_file.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a checkpoint is copied to the heap where twice its bytes are free, else to files of its folder") {
  const TempFolder folder;
  struct Case {
    int64_t bytes, free;
    bool in_file;
  };
  for (const auto& [bytes, free, in_file] : {Case{1000, 2000, false}, Case{1000, 1999, true},
                                             Case{1000, 1, true}, Case{1000, 0, false}, Case{0, 1, false}}) {
    INFO(bytes << " bytes, " << free << " free");
    const auto memory = checkpoint_memory(folder.path(), bytes, free);
    const auto tensor = memory({1 << 20}, torch::kUInt8);
    CHECK(in_nameless_file(tensor, folder.path()) == in_file);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}
