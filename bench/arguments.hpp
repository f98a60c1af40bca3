// SPDX-License-Identifier: Apache-2.0
// What users type: numbers without mercy, lists, and the error that ends the program with exit code 2.
#ifndef KFUSE_BENCH_ARGUMENTS_HPP
#define KFUSE_BENCH_ARGUMENTS_HPP

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace bench {

// A wrong command line, a wrong file, too little memory: what the user can change.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Of them: what a device with more memory could do.
struct MemoryError : UsageError {
  using UsageError::UsageError;
};

// All of `text` as a whole number from `lowest` to `highest`; anything else is refused, and `flag` named.
inline int whole_number(std::string_view flag, std::string_view text, int lowest, int highest) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest)
    throw UsageError(std::string(flag) + ": '" + std::string(text) + "' is not a whole number from " +
                     std::to_string(lowest) + " to " + std::to_string(highest));
  return int(value);
}

// "a, b and c"
inline std::string listed(std::vector<std::string> const& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

// `text`, which must be one of `known`.
inline std::string one_of(std::string_view flag, std::string const& text, std::vector<std::string> const& known) {
  for (auto const& name : known)
    if (name == text) return text;
  throw UsageError(std::string(flag) + ": there is no '" + text + "'; there is " + listed(known));
}

// The parts of a list with commas, each one of `known` and given once, in the order of `known`.
inline std::vector<std::string> some_of(std::string_view flag, std::string const& text,
                                        std::vector<std::string> const& known) {
  std::vector<std::string> given, ordered;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t const comma = std::min(text.find(',', begin), text.size());
    given.push_back(one_of(flag, text.substr(begin, comma - begin), known));
    begin = comma + 1;
  }
  for (auto const& name : known)
    for (auto const& g : given)
      if (g == name) ordered.push_back(name);
  for (std::size_t i = 1; i < ordered.size(); ++i)
    if (ordered[i] == ordered[i - 1]) throw UsageError(std::string(flag) + ": '" + ordered[i] + "' is given twice");
  return ordered;
}

}  // namespace bench

#endif
