#include <lockstep/data/checkpoint.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <lockstep/data/digested_file.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kManifest = "manifest.json";
constexpr int kFormat = 1;
constexpr uint64_t kMostManifestBytes = 1 << 20;
constexpr uint64_t kMostTextBytes = 8 << 20;
constexpr int kManifestDepth = 3;  // of the values

[[noreturn]] void cannot_write(const fs::path& folder, int error) {
  throw output_failure(fmt::format("cannot write the checkpoint '{}'", folder.native()), error);
}

[[noreturn]] void cannot_remove(const fs::path& folder, int error) {
  throw output_failure(fmt::format("cannot remove the checkpoint '{}'", folder.native()), error);
}

[[noreturn]] void damaged(const fs::path& folder, const std::string& why) {
  throw WeightsError(fmt::format("the checkpoint '{}' is damaged: {}", folder.native(), why),
                     "take another checkpoint of the run");
}

// "ck/" is "ck".
fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path parent_of(const fs::path& folder) {
  return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
}

// A temporary folder, removed unless it was renamed.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& parent) : temporary_(create_temporary_folder(parent)) {}
  ~NewFolder() {
    std::error_code ignored;
    if (!renamed_) fs::remove_all(temporary_.path, ignored);  // before close() releases the lock
    ::close(temporary_.fd);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return temporary_.path; }

  // Returns 0 or errno. Never replaces a folder that is not empty.
  int rename_to(const fs::path& target) {
    fsync_folder(temporary_.path);
    const int error = rename_over(temporary_.path, target);
    renamed_ = error == 0;
    return error;
  }

  // Replaces a folder that is there. It is whole at every moment, and what it was is removed.
  int exchange_with(const fs::path& target) {
    if (::renameat2(AT_FDCWD, temporary_.path.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0)
      return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    remove_checkpoint(target);  // a file system that cannot exchange (NFS)
    return rename_to(target);
  }

 private:
  const TemporaryFile temporary_;
  bool renamed_ = false;
};

bool is_tensor_file(const std::string& name) { return name.ends_with(".safetensors"); }

// Returns true if it can be the name of a file in a checkpoint.
bool is_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.' && name != kManifest;
}

// A manifest can hold no other name.
bool is_utf8(const std::string& text) {
  try {
    return !Json(text).dump().empty();
  } catch (const Json::type_error&) {
    return false;
  }
}

void check_name(const std::string& name, bool of_tensors) {
  if (is_file_name(name) && is_utf8(name) && is_tensor_file(name) == of_tensors) return;
  throw UsageError(
      fmt::format("'{}' cannot be the name of {} in a checkpoint", name, of_tensors ? "tensors" : "a text"),
      "tensors have names such as model.safetensors, texts such as state.json; neither has a slash or bytes "
      "that are not UTF-8");
}

// An open file. Its functions throw std::system_error.
class FileToRead {
 public:
  explicit FileToRead(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category());
  }
  ~FileToRead() { ::close(fd_); }
  FileToRead(const FileToRead&) = delete;
  FileToRead& operator=(const FileToRead&) = delete;

  // Returns the next bytes; none at the end of the file.
  std::span<const char> next() {
    for (;;) {
      const auto count = ::read(fd_, part_.data(), part_.size());
      if (count >= 0) return {part_.data(), static_cast<size_t>(count)};
      if (errno != EINTR) throw std::system_error(errno, std::generic_category());
    }
  }

 private:
  const int fd_;
  std::array<char, 1 << 16> part_;
};

FileDigest digest_of(const fs::path& path) {
  FileToRead file(path);
  FileDigest digest;
  Sha256 hash;
  for (auto part = file.next(); !part.empty(); part = file.next()) {
    hash.update(std::as_bytes(part));
    digest.bytes += part.size();
  }
  digest.sha256 = hash.hex();
  return digest;
}

std::string text_of(const fs::path& path, uint64_t most_bytes) {
  FileToRead file(path);
  std::string text;
  for (auto part = file.next(); !part.empty(); part = file.next()) {
    text.append(part.begin(), part.end());
    if (text.size() > most_bytes) {
      throw std::runtime_error(fmt::format("it has more than {} bytes", most_bytes));
    }
  }
  return text;
}

std::string text_of(const Json& manifest) { return manifest.dump(2) + "\n"; }

// An error of a file in the temporary folder `made`, with the name that it would have got.
[[noreturn]] void cannot_write_file(const OutputError& error, const fs::path& made, const fs::path& folder) {
  std::string text = error.message();
  if (const auto at = text.find(made.native()); at != std::string::npos) {
    text.replace(at, made.native().size(), folder.native());
  }
  throw OutputError(text, error.hint_text());
}

void write_files(const fs::path& folder, const Checkpoint& checkpoint) {
  std::deque<DigestedFile> written;
  Json files = Json::object();
  const auto add = [&](const std::string& name, const auto& write) {
    auto& file = written.emplace_back(folder / name);
    write(file);
    const auto digest = file.digest();
    files[name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  };
  for (const auto& [name, tensors] : checkpoint.tensors) {
    add(name, [&](auto& file) { write_safetensors(tensors, [&](auto bytes) { file.write(bytes); }); });
  }
  for (const auto& [name, text] : checkpoint.texts) {
    add(name, [&](auto& file) { file.write(text); });
  }
  written.emplace_back(folder / kManifest).write(text_of({{"format", kFormat}, {"files", files}}));
  // Only now: the disk works on all of them while flush_to_disk() waits for one.
  for (auto& file : written) file.flush_to_disk();
}

Json parse_manifest(const fs::path& folder, const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= kManifestDepth; };
  auto manifest = Json::parse(text, shallow, /*allow_exceptions=*/false);
  if (manifest.is_object() && manifest.contains("format") && manifest["format"].is_number_integer() &&
      manifest["format"] != kFormat) {
    throw WeightsError(fmt::format("the checkpoint '{}' has format {}, this version of lockstep reads {}",
                                   folder.native(), manifest["format"].dump(), kFormat),
                       "use the version of lockstep that has written it");
  }
  // One byte more or less anywhere shows: the text is what the writer makes of these values.
  const bool as_written = manifest.is_object() && manifest.size() == 2 && manifest.contains("format") &&
                          manifest.contains("files") && manifest["files"].is_object() &&
                          text_of(manifest) == text;
  if (!as_written) damaged(folder, fmt::format("{} is not as it was written", kManifest));
  return manifest;
}

// Returns the names of the files. Throws unless each is as the manifest says.
std::vector<std::string> verified_files(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw WeightsError(fmt::format("there is no checkpoint '{}'", folder.native()));
  }
  if (!fs::is_regular_file(folder / kManifest, error))
    damaged(folder, fmt::format("it has no {}", kManifest));
  std::vector<std::string> names;
  std::string now = kManifest;
  try {
    const auto manifest = parse_manifest(folder, text_of(folder / kManifest, kMostManifestBytes));
    for (const auto& [name, entry] : manifest["files"].items()) {
      now = name;
      if (!is_file_name(name)) {
        damaged(folder, fmt::format("'{}' is no name of a file in it", name));
      }
      if (!fs::is_regular_file(folder / name)) damaged(folder, fmt::format("{} is missing", name));
      if (const auto bytes = fs::file_size(folder / name); entry.at("bytes") != bytes) {
        damaged(folder,
                fmt::format("{} has {} bytes, the manifest says {}", name, bytes, entry.at("bytes").dump()));
      }
      if (entry.at("sha256") != digest_of(folder / name).sha256) {
        damaged(folder, fmt::format("the SHA-256 of {} is not the manifest's", name));
      }
      names.push_back(name);
    }
  } catch (const Json::exception&) {
    damaged(folder, fmt::format("{} is not as it was written", kManifest));
  } catch (const std::system_error& failure) {
    damaged(folder, fmt::format("{} cannot be read: {}", now, failure.code().message()));
  } catch (const WeightsError&) {
    throw;
  } catch (const std::runtime_error& failure) {
    damaged(folder, fmt::format("{} cannot be read: {}", now, words_of(failure)));
  }
  return names;
}

// Returns true if a new checkpoint may replace this folder: it has no other files than a checkpoint, which
// may be damaged.
bool is_replaceable(const fs::path& folder) {
  Json listed;
  try {
    listed = parse_manifest(folder, text_of(folder / kManifest, kMostManifestBytes))["files"];
  } catch (const std::runtime_error&) {  // the manifest is missing or damaged: names must do
  }
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), [&](const auto& entry) {
    const auto name = entry.path().filename().native();
    return entry.is_regular_file() &&
           (listed.contains(name) || is_tensor_file(name) || name.ends_with(".json"));
  });
}

}  // namespace

void write_checkpoint(const fs::path& given, const Checkpoint& checkpoint) {
  for (const auto& file : checkpoint.tensors) check_name(file.first, /*of_tensors=*/true);
  for (const auto& file : checkpoint.texts) check_name(file.first, /*of_tensors=*/false);
  const auto folder = without_slash(given), parent = parent_of(folder);
  try {
    if (fs::is_directory(folder) && !is_replaceable(folder)) {
      throw OutputError(
          fmt::format("'{}' exists and has files that are not of a checkpoint", folder.native()),
          "give a path where nothing is");
    }
    remove_stale_temporaries(parent);
    NewFolder made(parent);
    try {
      write_files(made.path(), checkpoint);
    } catch (const OutputError& error) {
      cannot_write_file(error, made.path(), folder);
    }
    int error = made.rename_to(folder);
    if (error == EEXIST || error == ENOTEMPTY) {  // only one that was resumed from an older one has this step
      error = made.exchange_with(folder);
    }
    if (error != 0) cannot_write(folder, error);
    fsync_folder(parent);
  } catch (const std::system_error& error) {
    cannot_write(folder, error.code().value());
  }
}

void verify_checkpoint(const fs::path& folder) { verified_files(folder); }

Checkpoint read_checkpoint(const fs::path& folder, const TensorAllocator& memory) {
  Checkpoint checkpoint;
  for (const auto& name : verified_files(folder)) {
    if (is_tensor_file(name)) {
      checkpoint.tensors.emplace(name, load_safetensors(folder / name, {}, memory));
      continue;
    }
    try {
      checkpoint.texts.emplace(name, text_of(folder / name, kMostTextBytes));
    } catch (const std::runtime_error& failure) {
      damaged(folder, fmt::format("{} cannot be read: {}", name, words_of(failure)));
    }
  }
  return checkpoint;
}

void link_checkpoint(const fs::path& given, const std::string& name) {
  const auto folder = without_slash(given), parent = parent_of(folder);
  try {
    // A link cannot be locked. It is made in a temporary folder, which a killed process leaves to the next
    // one.
    const NewFolder made(parent);
    const auto link = made.path() / name;
    fs::create_symlink(folder.filename(), link);
    if (const int error = rename_over(link, parent / name)) cannot_write(parent / name, error);
    fsync_folder(parent);
  } catch (const std::system_error& error) {
    cannot_write(parent / name, error.code().value());
  }
}

void remove_checkpoint(const fs::path& given) {
  const auto folder = without_slash(given);
  try {
    // It loses its name at once. If this process is killed, the rest is removed as a stale temporary.
    const NewFolder made(parent_of(folder));
    if (const int error = rename_over(folder, made.path())) {
      cannot_remove(folder, error);
    }
  } catch (const std::system_error& error) {
    cannot_remove(folder, error.code().value());
  }
}

}  // namespace lockstep
