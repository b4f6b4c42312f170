#include <lockstep/app/files/line_file.h>

#include <fmt/format.h>

namespace lockstep {

void LineFile::append_line(std::string_view line) {
  file_.write(fmt::format("{}\n", line));
  if (!in_place_) file_.put_in_place();
  in_place_ = true;
}

}  // namespace lockstep
