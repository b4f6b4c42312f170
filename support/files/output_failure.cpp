#include <lockstep/support/files/output_failure.h>

#include <cerrno>

#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

const char* hint_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder in which you may write";
    case ENOENT:
      return "check the path: its folder must exist";
    case ENOTDIR:
      return "a part of the path is a file: choose another path";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case ENOSPC:
    case EDQUOT:
      return "free some space, or choose another disk";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

}  // namespace

OutputError output_failure(const std::string& what, int error) {
  return OutputError(what + ": " + errno_text(error), hint_of(error));
}

}  // namespace lockstep
