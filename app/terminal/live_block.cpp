#include <lockstep/app/terminal/live_block.h>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include <lockstep/app/terminal/interrupt.h>

namespace lockstep {
namespace {

std::mutex block_mutex;  // of all that is drawn or written above
LiveBlock* shown_block = nullptr;

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

}  // namespace

LiveBlock::LiveBlock(int fd, pid_t group) : fd_(fd), group_(group) {
  const std::lock_guard lock(block_mutex);
  shown_block = this;
}

LiveBlock::~LiveBlock() {
  const std::lock_guard lock(block_mutex);
  wipe();
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

// A terminal that does not control this process has no foreground group.
bool LiveBlock::has_terminal() const {
  const pid_t foreground = ::tcgetpgrp(fd_);
  return foreground < 0 || foreground == group_;
}

LiveBlock::Size LiveBlock::size() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

// After a resize the next show() draws.
void LiveBlock::draw() {
  if (lines_.empty() || InterruptGuard::noted()) return;
  if (size() != made_for_) return wipe();
  if (!has_terminal()) return wipe();
  drawn_ = true;
  InterruptGuard::begin_message_with(kEraseBlock.data());
  write_to(fd_, drawing_of(lines_));
  if (InterruptGuard::noted()) wipe();  // its message may have come before the drawing
}

// What another group has the cursor of is not touched.
void LiveBlock::wipe() {
  if (drawn_ && has_terminal()) write_to(fd_, kEraseBlock);
  InterruptGuard::begin_message_with(nullptr);
  drawn_ = false;
}

AboveBlock::AboveBlock(int fd) : lock_(block_mutex), concerned_(shown_block && ::isatty(fd)) {
  if (concerned_) shown_block->wipe();
}

AboveBlock::~AboveBlock() {
  if (concerned_) shown_block->draw();
}

}  // namespace lockstep
