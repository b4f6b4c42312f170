// Messages on standard error. Only this file uses spdlog.
#pragma once

#include <functional>
#include <string_view>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

// Call it before the first message. Messages of several threads do not mix within a line.
void set_up_logging(const Terminal& terminal);

// Prints "lockstep: warning: ...".
void warn(std::string_view message);

// Prints "lockstep: ...".
void inform(std::string_view message);

// While it lives, each message is also given to `copy`: "warning: ..." for warnings, without colour. `copy`
// may be called by any thread, but by one at a time. It must not throw or give messages itself. One object at
// a time.
class MessageCopies {
 public:
  explicit MessageCopies(std::function<void(std::string_view)> copy);
  ~MessageCopies();
  MessageCopies(const MessageCopies&) = delete;
  MessageCopies& operator=(const MessageCopies&) = delete;
};

}  // namespace lockstep
