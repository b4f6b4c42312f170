// The current folder.
#pragma once

#include <filesystem>

namespace lockstep::testing {

// While it lives, this folder is the current one.
class InFolder {
 public:
  explicit InFolder(const std::filesystem::path& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  const std::filesystem::path before_;
};

}  // namespace lockstep::testing
