// Where a folder that is not there yet would be made.
#pragma once

#include <filesystem>

namespace lockstep {

// Returns the path itself if there is something, or the nearest one above it, absolute. A link is something,
// also one that leads nowhere, and so is a path that cannot be looked at.
std::filesystem::path nearest_path(const std::filesystem::path& path);

}  // namespace lockstep
