// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says what is being done, and leaves nothing behind.
#ifndef KFUSE_BENCH_PROGRESS_HPP
#define KFUSE_BENCH_PROGRESS_HPP

#include <cstdio>
#include <string>

#include <unistd.h>

namespace bench {

class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() { say(""); }
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;

  void say(std::string const& text) const {
    if (shown_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  }

 private:
  bool shown_;
};

}  // namespace bench

#endif
