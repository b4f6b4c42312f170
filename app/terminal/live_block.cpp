#include <lockstep/app/terminal/live_block.h>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <thread>
#include <utility>

#include <lockstep/app/terminal/interrupt.h>

namespace lockstep {
namespace {

std::mutex block_mutex;  // of all that is drawn or written above
LiveBlock* shown_block = nullptr;

// For the handler of Ctrl-Z.
std::atomic<int> drawn_on = -1;         // the terminal of the block that is drawn; -1: none is
std::atomic<pid_t> drawing_group = 0;   // must have the terminal
std::atomic<bool> drawing_now = false;  // a thread draws or erases: the stop comes when it is done
std::atomic<bool> stop_wanted = false;  // from SIGTSTP until the process goes on: nothing is drawn
std::atomic<bool> stopping = false;     // one thread stops the process
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Async-signal-safe. A terminal that does not control this process has no foreground group.
bool has_terminal(int fd, pid_t group) {
  const pid_t foreground = ::tcgetpgrp(fd);
  return foreground < 0 || foreground == group;
}

// In one call if possible, so that a signal's message does not get into the middle.
void write_to(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

// Writes over what is there, which flickers less than erasing it first. Ends at the first line's start.
std::string drawing_of(const std::vector<std::string>& lines) {
  std::string text = "\r";
  for (size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\x1b[K\r\n" : "") + lines[i];
  text += "\x1b[J\r";
  if (lines.size() > 1) text += fmt::format("\x1b[{}A", lines.size() - 1);
  return text;
}

void on_stop(int);

void handle_stop(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTSTP, &action, nullptr);
}

// Stops the process, as SIGTSTP does without a handler. Returns after SIGCONT. Async-signal-safe.
void stop_here() {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  handle_stop(SIG_DFL);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, &before);  // stops here
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Erases the block and stops the process if that is wanted. A thread that finds another one at it leaves it
// to that one, which looks again when it is done. Async-signal-safe.
void erase_and_stop() {
  while (stop_wanted) {
    if (stopping.exchange(true)) return;
    if (stop_wanted) {
      if (const int fd = drawn_on; fd >= 0 && has_terminal(fd, drawing_group)) write_to(fd, kEraseBlock);
      drawn_on = -1;
      InterruptGuard::begin_message_with(nullptr);
      stop_here();
      stop_wanted = false;  // before the handler is back, which may set it again
      handle_stop(on_stop);
    }
    stopping = false;
  }
}

// The handler of Ctrl-Z.
void on_stop(int) {
  const int error = errno;
  stop_wanted = true;
  if (!drawing_now) erase_and_stop();
  errno = error;
}

// Returns when no thread is about to change the handler of SIGTSTP. Not for handlers.
void await_stopping() {
  while (stopping) std::this_thread::yield();
}

// While it lives, SIGTSTP waits: it must not come between the look at who has the terminal and the drawing.
// Blocking the signal would not do, since the kernel would hand it to another thread.
class Drawing {
 public:
  Drawing() { drawing_now = true; }
  ~Drawing() {
    drawing_now = false;
    erase_and_stop();
  }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

  // The handler has found nobody drawing.
  bool comes_too_late() const { return stop_wanted || stopping; }
};

}  // namespace

LiveBlock::LiveBlock(int fd, pid_t group) : fd_(fd), group_(group) {
  const std::lock_guard lock(block_mutex);
  await_stopping();
  shown_block = this;
  drawing_group = group;
  sigaction(SIGTSTP, nullptr, &stop_before_);
  if (stop_before_.sa_handler == SIG_DFL) handle_stop(on_stop);
}

LiveBlock::~LiveBlock() {
  const std::lock_guard lock(block_mutex);
  wipe();
  await_stopping();
  sigaction(SIGTSTP, &stop_before_, nullptr);
  shown_block = nullptr;
}

void LiveBlock::show(std::vector<std::string> lines) {
  const std::lock_guard lock(block_mutex);
  lines_ = std::move(lines);
  made_for_ = size();
  draw();
}

void LiveBlock::erase() {
  const std::lock_guard lock(block_mutex);
  wipe();
  lines_.clear();
}

LiveBlock::Size LiveBlock::size() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

// After a resize the next show() draws.
void LiveBlock::draw() {
  if (lines_.empty() || InterruptGuard::signal()) return;
  if (size() != made_for_ || !write_block()) return wipe();
  if (InterruptGuard::signal()) wipe();  // its message may have come before the drawing
}

bool LiveBlock::write_block() {
  const Drawing drawing;
  if (drawing.comes_too_late()) return true;
  if (!has_terminal(fd_, group_)) return false;
  drawn_on = fd_;
  InterruptGuard::begin_message_with(kEraseBlock.data());
  write_to(fd_, drawing_of(lines_));
  return true;
}

// Does not touch a terminal in which another group has the cursor.
void LiveBlock::wipe() {
  const Drawing drawing;
  if (drawn_on.exchange(-1) >= 0 && has_terminal(fd_, group_)) write_to(fd_, kEraseBlock);
  InterruptGuard::begin_message_with(nullptr);
}

AboveBlock::AboveBlock(int fd) : lock_(block_mutex), concerned_(shown_block && ::isatty(fd)) {
  if (concerned_) shown_block->wipe();
}

AboveBlock::~AboveBlock() {
  if (concerned_) shown_block->draw();
}

}  // namespace lockstep
