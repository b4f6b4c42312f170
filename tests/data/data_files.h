// A folder with the four IDX files of a small data set, each of which a test can damage.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/data/idx_folder.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/data/gzip_bytes.h>
#include <lockstep/tests/data/idx_bytes.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep::testing {

// A file of a small data set.
struct DataFile {
  std::string name;
  Bytes bytes;
};

inline constexpr uint32_t kTrainRows = 5;
inline constexpr uint32_t kTestRows = 3;

inline Bytes pixels(uint32_t rows, uint8_t first) {
  Bytes values(rows * 784);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(first + i * 37 + i / 784);
  return values;
}

// A small data set of the right form: 5 and 3 rows.
inline std::vector<DataFile> small_set() {
  return {{"train-images-idx3-ubyte", idx_bytes({kTrainRows, 28, 28}, pixels(kTrainRows, 1))},
          {"train-labels-idx1-ubyte", idx_bytes({kTrainRows}, {9, 0, 3, 3, 7})},
          {"t10k-images-idx3-ubyte", idx_bytes({kTestRows, 28, 28}, pixels(kTestRows, 2))},
          {"t10k-labels-idx1-ubyte", idx_bytes({kTestRows}, {1, 2, 8})}};
}
inline constexpr size_t kTrainLabels = 1, kTestImages = 2, kTestLabels = 3;  // indices in it

// A folder with the files of a small set. A test can replace each file.
class DataFolder {
 public:
  explicit DataFolder(bool gzip) : gzip_(gzip) {
    for (const DataFile& file : small_set()) write(file.name, file.bytes);
  }

  std::filesystem::path path(const std::string& name) const {
    return folder_ / (gzip_ ? name + ".gz" : name);
  }
  void write(const std::string& name, const Bytes& bytes) const {
    write_stored(name, gzip_ ? gzipped(bytes) : bytes);
  }
  void write_stored(const std::string& name, const Bytes& bytes) const { write_bytes(path(name), bytes); }
  const std::filesystem::path& folder() const { return folder_.path(); }
  bool gzip() const { return gzip_; }

  // Returns the message of the DataError that loading throws.
  std::string failure() const {
    try {
      load_idx_folder(folder());
    } catch (const DataError& error) {
      CHECK_FALSE(error.hint().empty());
      return error.message();
    }
    FAIL("no DataError");
    return {};
  }

 private:
  TempFolder folder_;
  bool gzip_;
};

}  // namespace lockstep::testing
