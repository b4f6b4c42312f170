// A variable of the environment.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace lockstep::testing {

// Set for the lifetime of the object.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

}  // namespace lockstep::testing
