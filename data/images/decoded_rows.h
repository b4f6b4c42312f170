// Image files as rows of bytes: decoded once into memory, or read while training.
//
//   const auto photos = find_image_folder("photos");
//   const auto train = streamed_image_rows(photos.train, {.size = 224}, {.workers = 4, .notice = say});
//   const auto pixels = measure(train, {.sample = 10'000, .seed = 1}).normalization;
//   const auto augmentation = parse_augmentation("resized-crop,flip");
//   Trainer trainer(factory, normalized(augmented(train.sources, augmentation, /*seed=*/1), pixels),
//                   normalized(resident_image_rows(photos.test, {.size = 224}, 4).sources, pixels), options);
//   train_epochs(trainer, {.epochs = 10,
//                          .batch_size = 256,
//                          .order = [&](int64_t epoch) { return batch_order(1, epoch, train.rows); }});
//
// A row is "images" (channels, height, width) uint8 and the target "labels" () int64. All images of a data
// set have the size of the first one, which DecodeOptions::size sees to. Errors are DataErrors that begin
// with the file's path. ImageFiles (image_files_dataset.h) is the same for torch::data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include <lockstep/data/images/image_files.h>
#include <lockstep/data/images/image_list.h>
#include <lockstep/data/images/pixels.h>
#include <lockstep/data/training_data.h>
#include <lockstep/support/notice.h>

namespace lockstep {

// Reads and decodes a file. Throws DataError, which begins with the path, for one that is missing, damaged or
// of another format.
Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options);

// As above. Also throws DataError for a file that has another size than when it was found, or that has been
// written since.
Pixels decode_file(const ImageFile& file, const DecodeOptions& options);

// Reads what stands before the pixels of a file. Throws as decode_file() does.
ImageInfo info_of_file(const std::filesystem::path& path);

// Returns true if all files are grey, so that one channel holds them. Reads their headers, up to the first
// one with colours. Throws as info_of_file() does.
bool all_grey(const ImageList& files, int workers);

// The numbers of images that are used: the first ones.
struct WantedImages {
  size_t train = std::numeric_limits<size_t>::max();
  size_t test = std::numeric_limits<size_t>::max();
};

// Returns the folder without the images that cannot be decoded: damaged ones, and those of another format
// than their names say. They are added to `unreadable`. Decodes files in order, by this number of threads,
// until it has the wanted ones; later ones stay as they are. Throws DataError for a half, and for a class of
// the training images, of which none is left. The digest stays that of all files.
ImageFolder readable_images(ImageFolder folder, const WantedImages& wanted, int workers);

// Returns the bytes that a thread holds at most while it decodes one of the files: those of the file, of the
// pixels as they are stored, while they are resized, and of the result. An estimate: the headers of the 64
// files with the most bytes tell, but for damaged ones, and turned images and progressive JPEGs take more.
int64_t decoding_bytes(const ImageList& files, const DecodeOptions& options);

// Returns a hash of the names, sizes and labels of the first `count` files, and of the names of the folders
// that they lie in: their bytes are too many to read, and folders above differ between machines.
std::string hash_of_files(const ImageList& files, int64_t count);

// Returns a hash of the times at which the files were last written, 16 digits: what tells files that were
// replaced by others of the same names and sizes.
std::string hash_of_times(const ImageList& files);

// Decodes all files, by this number of threads, into one tensor on the host: each device of a Trainer gets a
// copy. Throws UsageError for workers below 1, and the DataError of the first file that has one, or that has
// another size.
DataRows resident_image_rows(const ImageList& files, const DecodeOptions& options, int workers);

struct StreamOptions {
  int workers = 1;                           // threads that decode, for each distinct device
  int64_t queue_bytes = int64_t{256} << 20;  // of images that are decoded before a batch asks for them
  Notice notice = {};                        // told once for each device if the workers do not keep up
  std::string name = {};                     // as of DatasetRowsOptions
  bool evaluated = false;
};

// Decodes the first file, and the others when a batch asks for them: ahead, by workers, for rows that
// Trainer::will_need() has told, which train_epochs() does. A batch decodes what is missing itself, so it
// never waits for room in the queue. Evaluations are not told, and decode with all workers. A file that
// cannot be decoded, also because it has vanished, ends the step that asks for it with a DataError that has
// the row and the path. Throws UsageError for options out of range, and DataError for the first file.
DataRows streamed_image_rows(const ImageList& files, const DecodeOptions& options,
                             const StreamOptions& stream = {});

namespace detail {

// Returns the image of a file. Several threads call it at once.
using ImageDecoder = std::function<Pixels(const ImageFile& file)>;

DataRows resident_image_rows(const ImageList& files, const ImageDecoder& decode, int workers);
DataRows streamed_image_rows(const ImageList& files, const ImageDecoder& decode, const StreamOptions& stream);

}  // namespace detail
}  // namespace lockstep
