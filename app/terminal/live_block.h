// Lines at the bottom of a terminal that are drawn in place again and again, while all other lines scroll
// above them.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Erases a block: from the start of the cursor's line to the end of the screen.
inline constexpr std::string_view kEraseBlock = "\r\x1b[J";

// The cursor rests at the start of the block. So erasing needs no count of lines: it works after a resize
// that has broken them anew, in a signal's handler, and for whatever prints after the program was killed.
//
// Nothing is drawn after InterruptGuard has noted a signal: its message erases the block. Nothing is drawn
// either while another process group has the terminal, as when the shell has put the program into the
// background. Ctrl-Z (SIGTSTP) erases the block before the process stops; it is drawn again by the next
// show() or line above. A program that ignores or handles SIGTSTP keeps doing so. At most one block exists at
// a time. Thread-safe.
class LiveBlock {
 public:
  // fd: a terminal. group: the process group that must have the terminal.
  LiveBlock(int fd, pid_t group);
  ~LiveBlock();  // erases the block
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  // Draws these lines in place of the present ones. Each must be narrower than the terminal, and there must
  // be fewer than it has rows. Errors of writing are ignored: what is drawn is no result.
  void show(std::vector<std::string> lines);

  // The lines are gone until the next show().
  void erase();

 private:
  friend class AboveBlock;

  using Size = std::pair<int, int>;  // columns, rows

  Size size() const;
  void draw();
  bool write_block();  // false: another group has the terminal
  void wipe();

  const int fd_;
  const pid_t group_;
  std::vector<std::string> lines_;
  Size made_for_{};  // the terminal's size when lines_ were shown: on another one they may not fit
  struct sigaction stop_before_ {};
};

// While it lives, whole lines can be written to `fd`: if that is a terminal, a block is erased before and
// drawn again afterwards. write_stdout(), warn() and inform() have one each.
class AboveBlock {
 public:
  explicit AboveBlock(int fd);
  ~AboveBlock();
  AboveBlock(const AboveBlock&) = delete;
  AboveBlock& operator=(const AboveBlock&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
  const bool concerned_;
};

}  // namespace lockstep
