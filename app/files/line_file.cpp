#include <lockstep/app/files/line_file.h>

#include <fmt/format.h>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

LineFile::LineFile(const std::string& path, bool overwrite) {
  if (path != kStandardOutput) file_.emplace<AtomicFile>(path, overwrite);
}

LineFile::LineFile(const std::string& path, After after) { file_.emplace<GrowingFile>(path, after.bytes); }

void LineFile::append_line(std::string_view line) {
  const auto text = fmt::format("{}\n", line);
  if (auto* growing = std::get_if<GrowingFile>(&file_)) return growing->write(text);
  auto* file = std::get_if<AtomicFile>(&file_);
  if (!file) return write_stdout(text);
  file->write(text);
  if (!in_place_) file->commit();
  in_place_ = true;
}

void LineFile::cut(int64_t size) {
  if (auto* growing = std::get_if<GrowingFile>(&file_)) growing->cut(size);
}

int64_t LineFile::size() const {
  const auto* growing = std::get_if<GrowingFile>(&file_);
  return growing ? growing->size() : 0;
}

}  // namespace lockstep
