// A zip archive of stored records under one root folder, as torch writes them, mapped into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::program {

class MappedFile;

// Reads the directory of the archive and checks it: sizes and offsets lie in the file, records do not
// overlap, are stored (not compressed, not encrypted), have one root folder and different names without "..".
// Zip64 is read. Throws WeightsError. Immutable: several threads may read it.
class Archive {
 public:
  explicit Archive(const std::filesystem::path& path);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  struct Record {
    std::string name;                  // without the root folder: "models/model.json"
    std::span<const std::byte> bytes;  // not aligned unless the file's writer aligned them, as torch does
    uint32_t crc32 = 0;
  };
  const std::vector<Record>& records() const { return records_; }  // in the order of the file
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Throws WeightsError when there is no such record. Its bytes are not checked.
  const Record& record(std::string_view name) const;

  // Throw WeightsError when there is no such record, when its bytes do not have its CRC-32 (each call
  // computes it), or when the file was changed in place after it was opened. (A file that was replaced by
  // rename stays as it was.)
  std::span<const std::byte> bytes(std::string_view name) const;
  std::string_view text(std::string_view name) const;

  const std::filesystem::path& path() const { return path_; }
  const std::string& root() const { return root_; }  // "net", the folder of all records
  std::span<const std::byte> whole_file() const;

 private:
  const Record* find(std::string_view name) const;
  void add_records();

  const std::filesystem::path path_;
  std::unique_ptr<const MappedFile> file_;
  std::string root_;
  std::vector<Record> records_;
  std::unordered_map<std::string_view, size_t> index_;  // of records_, by name
};

// A record of a new archive. `bytes` is called once, when it is written; what it returns must live until the
// next record's is called, and have `size` bytes.
struct NewRecord {
  std::string name;  // without the root folder
  size_t size = 0;
  std::function<std::span<const std::byte>()> bytes;
};

// Writes an archive with these records under `root`, in this order, each stored, its bytes at a multiple of
// 64, with its CRC-32: what torch.export.load reads. The file appears whole, by rename, and replaces an
// existing one. Throws OutputError if it cannot be written.
void write_archive(const std::filesystem::path& path, const std::string& root,
                   const std::vector<NewRecord>& records);

}  // namespace lockstep::program
