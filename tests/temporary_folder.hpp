// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_TESTS_TEMPORARY_FOLDER_HPP
#define KFUSE_TESTS_TEMPORARY_FOLDER_HPP

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

#include <stdlib.h>

namespace kfuse::test {

// All that a file holds.
inline std::string text_of(std::filesystem::path const& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A folder of its owner alone, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kfuse-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
    path_ = pattern;
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path const& path() const { return path_; }
  std::filesystem::path path(std::string const& name) const { return path_ / name; }
  // The path of a new file `name` that holds `bytes`.
  std::filesystem::path write(std::string const& name, std::string const& bytes) const {
    std::ofstream stream(path(name), std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), std::streamsize(bytes.size()));
    stream.close();
    if (!stream) throw std::runtime_error("could not write " + path(name).string());
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace kfuse::test

#endif
