#include <lockstep/app/files/nearest_path.h>

#include <system_error>

namespace lockstep {

std::filesystem::path nearest_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto nearest = fs::absolute(path, ignored);
  while (fs::symlink_status(nearest, ignored).type() == fs::file_type::not_found &&
         nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  return nearest;
}

}  // namespace lockstep
