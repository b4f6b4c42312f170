// Folders that this process may not write to.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep::testing {

// While it lives, these folders can be read only. A process of root, who may write everywhere, becomes the
// user nobody, but stays in root's group: group and others may read, too. Throws std::system_error.
class ReadOnly {
 public:
  explicit ReadOnly(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)), user_(::geteuid()) {
    using std::filesystem::perms;
    set(perms::owner_read | perms::owner_exec | perms::group_read | perms::group_exec | perms::others_read |
        perms::others_exec);
    if (user_ == 0 && ::setresuid(kNobody, kNobody, 0) != 0)
      throw std::system_error(errno, std::generic_category(), "setresuid");
  }
  ~ReadOnly() {
    static_cast<void>(::setresuid(user_, user_, user_));
    static_cast<void>(::prctl(PR_SET_DUMPABLE, 1));  // a change of user turns it off; leak checkers need it
    set(std::filesystem::perms::owner_all);
  }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;

  void set(std::filesystem::perms allowed) const {
    for (const auto& folder : folders_) std::filesystem::permissions(folder, allowed);
  }

  const std::vector<std::filesystem::path> folders_;
  const uid_t user_;
};

}  // namespace lockstep::testing
