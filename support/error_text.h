// The texts of errors, which may name options. A user of the library reads their names in C++. A program with
// a command line puts its own names in their place: only it knows those.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct NamedOption {
  std::string key;         // the name of its field: "cuda_graph"
  std::string value = {};  // "auto"; empty: the option, whatever its value
  std::string words = {};  // words in a text of the library: "CudaGraph::kAuto"; empty: the key
};

class ErrorText {
 public:
  ErrorText() = default;
  ErrorText(const char* words) : words_(words) {}
  ErrorText(std::string words) : words_(std::move(words)) {}
  ErrorText(NamedOption option) : words_(option.words.empty() ? option.key : option.words) {
    named_.push_back({.begin = 0, .size = words_.size(), .option = std::move(option)});
  }

  ErrorText& operator+=(const ErrorText& more) {
    for (auto named : more.named_) {
      named.begin += words_.size();
      named_.push_back(std::move(named));
    }
    words_ += more.words_;
    return *this;
  }

  // The text with the names of C++.
  const std::string& words() const noexcept { return words_; }

  // The text with name_of(option) where it names an option.
  std::string words(const std::function<std::string(const NamedOption&)>& name_of) const {
    auto words = words_;
    for (size_t i = named_.size(); i-- > 0;) {  // from the end: places before it stay where they are
      words.replace(named_[i].begin, named_[i].size, name_of(named_[i].option));
    }
    return words;
  }

  // The keys of the options that it names, in their order.
  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    for (const auto& named : named_) keys.push_back(named.option.key);
    return keys;
  }

 private:
  struct Named {
    size_t begin, size;  // in words_
    NamedOption option;
  };

  std::string words_;
  std::vector<Named> named_;
};

inline ErrorText operator+(ErrorText text, const ErrorText& more) { return std::move(text += more); }

}  // namespace lockstep
