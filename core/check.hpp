// SPDX-License-Identifier: Apache-2.0
// The one way to reject arguments: on the host, before anything is launched or written.
#ifndef KFUSE_CORE_CHECK_HPP
#define KFUSE_CORE_CHECK_HPP

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kfuse {

// Thrown for every invalid argument. The message names the operator, the problem, the reason and a cure.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace impl {

// `where` is the operator's public name, with the argument if one is to blame ("rmsnorm: weight").
inline void check(bool ok, std::string_view where, std::string_view message) {
  if (!ok) throw Error(std::string(where) + ": " + std::string(message));
}

// For messages that cost something to compose: `message` is called only if the check fails.
template <class Message>
requires requires(Message m) {
  std::string_view(m());
}
void check(bool ok, std::string_view where, Message const& message) {
  if (!ok) check(false, where, std::string_view(message()));
}

// Is the option `name` one of its enumeration, from 0 to `last`?
template <class Enumeration>
void check_one_of(Enumeration value, Enumeration last, std::string_view where, char const* name) {
  check(int(value) >= 0 && value <= last, where, [&] {
    return std::string(name) + ": there is none with the number " + std::to_string(int(value)) +
           " (it would pass for another); give it one of its enumeration";
  });
}

// A number as messages show it: six digits at most.
inline std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", x);
  return text;
}

}  // namespace impl
}  // namespace kfuse

#endif
