// The format of a file of weights, which its name decides.
#pragma once

#include <string>

namespace lockstep {

// Returns true for a name that ends with .pt2, in any case: the exported program with its weights is written,
// instead of these alone.
bool names_program(const std::string& path);

// Throws UsageError for a name whose ending promises another format than the file would have: that of a
// pickle (.pt, .pth, .bin, .ckpt, ...), which is never written, or of a program where there is none. All
// other names are those of safetensors files. flag: for the message, such as "--save". has_program: the
// weights are an exported program's.
void check_weights_name(const std::string& flag, const std::string& path, bool has_program);

}  // namespace lockstep
