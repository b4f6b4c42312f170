#include <lockstep/app/files/line_file.h>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

LineFile::LineFile(const std::string& path, bool overwrite) {
  if (path != kStandardOutput) file_.emplace<AtomicFile>(path, overwrite);
}

void LineFile::append(std::string_view line) {
  auto* file = std::get_if<AtomicFile>(&file_);
  if (!file) return write_stdout(line);
  file->write(line);
  if (!in_place_) file->commit();
  in_place_ = true;
}

}  // namespace lockstep
