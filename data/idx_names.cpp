#include <lockstep/data/idx_names.h>

#include <fmt/format.h>

#include <system_error>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool cut_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

// Names are preferred in this order: plain, with a dash, t10k, idx3.
enum Order : int { kIdx4 = 1, kTest = 2, kDot = 4, kGzip = 8 };

}  // namespace

std::optional<IdxName> parse_idx_name(std::string_view name) {
  IdxName found;
  if (cut_end(name, ".gz")) found.order += kGzip;
  const bool labels = cut_end(name, "idx1-ubyte");
  if (!labels && !cut_end(name, "idx3-ubyte")) {
    if (!cut_end(name, "idx4-ubyte")) return std::nullopt;
    found.order += kIdx4;
  }
  if (cut_end(name, ".")) {
    found.order += kDot;
  } else if (!cut_end(name, "-")) {
    return std::nullopt;
  }
  if (!cut_end(name, labels ? "-labels" : "-images")) return std::nullopt;
  const bool train = cut_end(name, "train");
  if (!train && !cut_end(name, "t10k")) {
    if (!cut_end(name, "test")) return std::nullopt;
    found.order += kTest;
  }
  if (!name.empty() && !cut_end(name, "-")) return std::nullopt;
  found.prefix = name;
  found.file = (train ? 0 : 2) + (labels ? 1 : 0);
  return found;
}

IdxNames idx_names_in(const fs::path& folder) {
  IdxNames names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    const auto found = parse_idx_name(name);
    if (!found) continue;
    auto& known = names[found->prefix].at(found->file);
    if (known.empty() || found->order < parse_idx_name(known)->order) known = name;
  }
  if (error) {
    throw DataError(fmt::format("cannot read {}: {}", folder.string(), error.message()),
                    "make the folder and its files readable (chmod), or name another folder");
  }
  return names;
}

}  // namespace lockstep
