// SPDX-License-Identifier: Apache-2.0
// Composes the messages of errors. (fmt would do, but nvcc 13 does not compile fmt 9 as C++20, and where Kokkos has
// CUDA every source of the models may be nvcc's.)
#ifndef KFUSE_MODELS_MESSAGE_HPP
#define KFUSE_MODELS_MESSAGE_HPP

#include <locale>
#include <sstream>
#include <string>

namespace kfuse::impl {

// The parts one after another; numbers look the same in every locale.
template <class... Parts>
std::string text(Parts const&... parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  (stream << ... << parts);
  return stream.str();
}

// "a, b, c"
template <class Range>
std::string listed(Range const& range) {
  std::string result;
  for (auto const& part : range) result += text(result.empty() ? "" : ", ", part);
  return result;
}

}  // namespace kfuse::impl

#endif
