#include <lockstep/app/terminal/live_block.h>

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

constexpr const char* kErase = "\r\x1b[J";  // from the line's start to the end of the screen

std::mutex mutex;  // of all that is drawn or written above
LiveBlock* block = nullptr;

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
  const std::lock_guard lock(mutex);
  block = this;
}

LiveBlock::~LiveBlock() {
  const std::lock_guard lock(mutex);
  wipe();
  block = nullptr;
}

void LiveBlock::show(std::vector<std::string> lines) {
  const std::lock_guard lock(mutex);
  lines_ = std::move(lines);
  draw();
}

void LiveBlock::erase() {
  const std::lock_guard lock(mutex);
  wipe();
  lines_.clear();
}

// A terminal that is not this session's has no foreground group.
bool LiveBlock::has_terminal() const {
  const pid_t foreground = ::tcgetpgrp(fd_);
  return foreground < 0 || foreground == group_;
}

void LiveBlock::draw() {
  if (lines_.empty() || InterruptGuard::noted()) return;
  if (!has_terminal()) return wipe();
  drawn_ = true;
  InterruptGuard::begin_message_with(kErase);
  write_to(fd_, drawing_of(lines_));
  if (InterruptGuard::noted()) wipe();  // its message may have come before the drawing
}

// What another group has the cursor of is not touched.
void LiveBlock::wipe() {
  if (drawn_ && has_terminal()) write_to(fd_, kErase);
  InterruptGuard::begin_message_with(nullptr);
  drawn_ = false;
}

AboveBlock::AboveBlock(int fd) : lock_(mutex), concerned_(block && ::isatty(fd)) {
  if (concerned_) block->wipe();
}

AboveBlock::~AboveBlock() {
  if (concerned_) block->draw();
}

void erase_leftovers(int fd) {
  if (Terminal(fd, ColorMode::kNever).interactive()) write_to(fd, kErase);
}

}  // namespace lockstep
