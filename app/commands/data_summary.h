// A data set as `lockstep data show` has found it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>

namespace lockstep {

struct ClassRows {
  std::string name;
  int64_t train = 0, test = 0;
};

// The files of images that could be read.
struct FilesSummary {
  int least_width = 0, most_width = 0, least_height = 0, most_height = 0;
  std::map<std::string, int64_t> kinds = {};  // "PNG grey", "JPEG colour", "PNG colour with alpha": files
};

struct DataSummary {
  std::string name, origin, kind;
  std::string row_noun = "row";
  std::vector<std::string> tensors = {};  // "images UInt8 [n, 1, 28, 28]"
  int64_t train_rows = 0, test_rows = 0;
  std::vector<double> mean = {}, deviation = {};  // per channel, of pixels / 255; empty: no images of bytes
  std::string digest = {};                        // of the files' names and sizes; empty: no files, or one
  std::string train_hash = {}, test_hash = {};
  std::vector<ClassRows> classes = {};
  std::string no_classes = {};  // why there are none
  std::optional<FilesSummary> files = {};
  std::vector<std::string> notices = {};     // what is odd: one sentence each, without a full stop
  std::vector<std::string> unreadable = {};  // files that are left out: the same, which begins with the path
};

// Lines for people, without notices and unreadable files, which are warnings. Ends with a newline.
std::string text_of(const DataSummary& summary);

Json json_of(const DataSummary& summary);

}  // namespace lockstep
