// Scripts that `lockstep launch` starts, for tests.
#pragma once

#include <sys/types.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <lockstep/tests/app/launch/waiting.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/process.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep::testing {

// A script of sh. In it $1 is a folder for its files, and what the test passes follows.
class Script {
 public:
  explicit Script(const std::string& text) {
    std::filesystem::create_directory(files());
    std::filesystem::create_directory(temporary());
    write_file(path(), "#!/bin/sh\n" + text);
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }

  std::string path() const { return (folder_ / "script.sh").string(); }
  std::filesystem::path files() const { return folder_ / "files"; }
  std::filesystem::path file(const std::string& name) const { return files() / name; }
  std::filesystem::path temporary() const { return folder_ / "temporary"; }  // the launcher's TMPDIR

  Process launch(int processes, const Words& flags = {}, const Words& arguments = {}) const {
    const Words command = {"--", path(), files().string()};
    return program(Words{"launch", "-n", std::to_string(processes)} + flags + command + arguments,
                   {{"TMPDIR", temporary().string()}});
  }

  // Returns true if a file of this name is there for each process: "name.0", "name.1", ...
  bool has_all(const std::string& name, int processes) const {
    for (int process = 0; process < processes; ++process) {
      if (!std::filesystem::exists(file(name + "." + std::to_string(process)))) return false;
    }
    return true;
  }

  // The number in the file.
  pid_t number_in(const std::string& name) const {
    pid_t number = 0;
    std::ifstream(file(name)) >> number;
    return number;
  }

 private:
  TempFolder folder_;
};

// The warning about programs, such as a script, that have not looked for each other.
inline std::string alone_warning(int processes) {
  return "lockstep: warning: none of the " + std::to_string(processes) +
         " processes has used the launcher's store: if they train, each trains alone; a program joins the "
         "others by "
         "join_process_group(find_world())";
}

// A shell's words that wait for the file, whose name ends with a dot and the number of the process.
inline std::string await_file(const std::string& name) {
  return "while [ ! -e \"$1/" + name + "\" ]; do sleep .02; done\n";
}

}  // namespace lockstep::testing
