// Where an operation stands in the Python source.
#pragma once

#include <string>

namespace lockstep::program {

// Returns the line of a Node::place that the user wrote, "net.py, line 12: return self.fc(x)": the innermost
// one outside torch's own folders, else the innermost. At most
// about 100 characters of code. Empty for an empty place.
std::string python_line(const std::string& place);

}  // namespace lockstep::program
