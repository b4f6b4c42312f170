// Links the rows of decoded_rows.h to the decoders of lockstep_images.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/file_bytes.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// Returns what `read` makes of these bytes of a file. Its errors begin with the path.
template <class Read>
auto of_bytes(const std::filesystem::path& path, const std::vector<uint8_t>& bytes, const Read& read) {
  try {
    return read(bytes);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} {}", path.string(), error.message()),
                    error.hint_text() + ", or leave such files out with " + NamedOption{"skip_unreadable"});
  }
}

// "2026-01-31 23:59:59.123456789 UTC"
std::string time_text(int64_t nanoseconds) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  const auto fraction = (nanoseconds % kPerSecond + kPerSecond) % kPerSecond;
  const auto seconds = static_cast<std::time_t>((nanoseconds - fraction) / kPerSecond);
  std::tm time = {};
  ::gmtime_r(&seconds, &time);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} UTC", 1900 + time.tm_year, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec, fraction);
}

// Throws DataError for a file that is not as it was found.
void check_unchanged(const ImageFile& file, const FileBytes& read) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{} has changed: {} when its folder was read", file.path.string(), what),
                    "leave the files of a data set as they are while it is used, and begin again");
  };
  const auto size = static_cast<int64_t>(read.bytes.size());
  if (file.size >= 0 && size != file.size) {
    refuse(fmt::format("it has {} bytes, and had {}", size, file.size));
  }
  if (file.written >= 0 && read.written != file.written) {
    refuse(fmt::format("it was written at {}, and had been at {}", time_text(read.written),
                       time_text(file.written)));
  }
}

// Reads the beginning of the file, or all of it where that does not tell.
int channels_of_file(const std::filesystem::path& path) {
  constexpr size_t kBeginning = 32 << 10;
  auto file = read_file_bytes(path, kBeginning);
  if (const auto size = static_cast<uint64_t>(file.size); file.bytes.size() < size) {
    try {
      return image_info(file.bytes, size).channels;
    } catch (const DataError&) {  // its header may be longer
      file = read_file_bytes(path);
    }
  }
  return of_bytes(path, file.bytes, [](const auto& bytes) { return image_info(bytes); }).channels;
}

// Returns what is wrong with each file, a sentence that begins with its path; empty: nothing.
std::vector<std::string> faults_of(const ImageList& files, size_t begin, size_t end, int workers) {
  std::vector<std::string> faults(end - begin);
  for_each_row(std::ssize(faults), workers, [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    try {
      decode_file(files[begin + i], {});
    } catch (const DataError& error) {
      faults[i] = error.message();
    }
  });
  return faults;
}

// The first fault of each class, or none.
using FirstFaults = std::vector<std::string>;

// Leaves out those of one half that have faults, of the first ones until so many have none.
FirstFaults leave_out_faulty(ImageList& files, size_t wanted, int workers, ImageFolder& folder) {
  FirstFaults first(folder.class_names.size());
  std::vector<ImageFile> readable;
  for (size_t begin = 0; begin < files.size();) {
    // Files behind the wanted ones stay as they are: nobody reads them.
    const bool enough = readable.size() >= wanted;
    const auto most = enough ? files.size() : wanted - readable.size();
    const auto end = begin + std::min(files.size() - begin, most);
    const auto faults =
        enough ? std::vector<std::string>(end - begin) : faults_of(files, begin, end, workers);
    for (size_t i = begin; i < end; ++i) {
      const auto& fault = faults[i - begin];
      if (fault.empty()) {
        readable.push_back(files[i]);
        continue;
      }
      folder.unreadable.push_back(fault);
      auto& of_class = first[static_cast<size_t>(files.label(i))];
      if (of_class.empty()) of_class = fault;
    }
    begin = end;
  }
  if (readable.size() < files.size()) files = readable;
  return first;
}

void require_some(const ImageList& files, size_t before, const std::string& what, const FirstFaults& faults) {
  if (!files.empty() || before == 0) return;
  const auto fault = std::ranges::find_if_not(faults, &std::string::empty);
  throw DataError(fmt::format("none of the {} for {} can be read, such as {}",
                              counted(static_cast<int64_t>(before), "image"), what, *fault),
                  "replace them: leaving them out leaves nothing");
}

int64_t decoding_bytes_of(const ImageFile& file, const DecodeOptions& options) {
  const auto info = info_of_file(file.path);
  const auto pixels = int64_t{info.height} * info.width;
  const int64_t size = options.size;
  const auto made = size > 0 ? size * size : pixels;
  const auto resized_rows = size * std::max(info.height, info.width);  // the first pass of two
  return std::max<int64_t>(0, file.size) + info.channels * (pixels + resized_rows) + options.channels * made;
}

detail::ImageDecoder decoder(const DecodeOptions& options) {
  return [options](const ImageFile& file) { return decode_file(file, options); };
}

}  // namespace

Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options) {
  const auto file = read_file_bytes(path);
  return of_bytes(path, file.bytes, [&](const auto& bytes) { return decode_image(bytes, options); });
}

Pixels decode_file(const ImageFile& file, const DecodeOptions& options) {
  const auto read = read_file_bytes(file.path);
  check_unchanged(file, read);
  return of_bytes(file.path, read.bytes, [&](const auto& all) { return decode_image(all, options); });
}

ImageInfo info_of_file(const std::filesystem::path& path) {
  return of_bytes(path, read_file_bytes(path).bytes, [](const auto& bytes) { return image_info(bytes); });
}

bool all_grey(const ImageList& files, int workers) {
  std::atomic<bool> grey = true;
  for_each_row(static_cast<int64_t>(files.size()), workers, [&](int64_t row) {
    if (grey && channels_of_file(files[static_cast<size_t>(row)].path) != 1) grey = false;
  });
  return grey;
}

ImageFolder readable_images(ImageFolder folder, const WantedImages& wanted, int workers) {
  const auto found = std::pair(folder.train.size(), folder.test.size());
  const auto faults = leave_out_faulty(folder.train, wanted.train, workers, folder);
  require_some(folder.train, found.first, "training", faults);
  require_some(folder.test, found.second, "testing",
               leave_out_faulty(folder.test, wanted.test, workers, folder));
  std::vector<bool> has(folder.class_names.size());
  for (size_t i = 0; i < folder.train.size(); ++i) has[static_cast<size_t>(folder.train.label(i))] = true;
  for (size_t i = 0; i < has.size(); ++i) {
    if (has[i] || faults[i].empty()) continue;
    throw DataError(fmt::format("class {} has no image for training that can be read, such as {}",
                                in_quotes(folder.class_names[i]), faults[i]),
                    "replace its images, or remove its folders");
  }
  return folder;
}

int64_t decoding_bytes(const ImageList& files, const DecodeOptions& options) {
  constexpr size_t kLookedAt = 64;
  std::vector<std::pair<int64_t, size_t>> by_size;
  by_size.reserve(files.size());
  for (size_t i = 0; i < files.size(); ++i) by_size.emplace_back(-files.bytes(i), i);
  const auto looked_at = std::min(kLookedAt, by_size.size());
  std::ranges::partial_sort(by_size, by_size.begin() + static_cast<ptrdiff_t>(looked_at));
  int64_t most = 0;
  for (size_t i = 0; i < looked_at; ++i) {
    try {
      most = std::max(most, decoding_bytes_of(files[by_size[i].second], options));
    } catch (const DataError&) {  // the row's own error, when it is read
    }
  }
  return most;
}

DataRows resident_image_rows(const ImageList& files, const DecodeOptions& options, int workers) {
  return detail::resident_image_rows(files, decoder(options), workers);
}

DataRows streamed_image_rows(const ImageList& files, const DecodeOptions& options,
                             const StreamOptions& stream) {
  return detail::streamed_image_rows(files, decoder(options), stream);
}

}  // namespace lockstep
