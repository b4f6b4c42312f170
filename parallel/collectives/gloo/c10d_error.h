// What c10d and Gloo say of an error, in one sentence.
#pragma once

#include <exception>
#include <string>

namespace lockstep {

// The first line of the error's text, without the place in torch's sources and without a backtrace.
std::string c10d_words(const std::exception& error);
std::string c10d_words(const std::exception_ptr& error);

}  // namespace lockstep
