#include <lockstep/app/files/line_file.h>

#include <fmt/format.h>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

LineFile::LineFile(const std::string& path, bool overwrite) {
  if (path != kStandardOutput) file_.emplace<AtomicFile>(path, overwrite);
}

void LineFile::append_line(std::string_view line) {
  const auto text = fmt::format("{}\n", line);
  auto* file = std::get_if<AtomicFile>(&file_);
  if (!file) return write_stdout(text);
  file->write(text);
  if (!in_place_) file->commit();
  in_place_ = true;
}

}  // namespace lockstep
