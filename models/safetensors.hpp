// SPDX-License-Identifier: Apache-2.0
// Reads a safetensors file: the file is mapped into memory read-only, and tensors are found by name, not copied.
//
//   file   = header length (8 bytes, little-endian) | header (JSON) | data
//   header = {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
//
// Files come from strangers, so the whole header is proved before the first tensor is handed out: every tensor lies
// inside the data, is as long as its shape says, shares no byte with another, and no byte belongs to nobody. What does
// not hold is refused with a kfuse::Error. Not proved, because it cannot be: that nobody shortens the file later, while
// it is mapped.
#ifndef KFUSE_MODELS_SAFETENSORS_HPP
#define KFUSE_MODELS_SAFETENSORS_HPP

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kfuse {

// How a number is stored in the file. f8_e4m3 is the variant without infinities (F8_E4M3 in the format).
enum class StoredType { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

// The name that the format uses, such as "BF16".
std::string_view name(StoredType type);

// Bytes of one number.
std::size_t stored_size(StoredType type);

// A tensor inside the mapped file, row-major. `data` has no alignment (read it with memcpy) and lives as long as the
// Safetensors it came from. A scalar has an empty shape and one element.
struct StoredTensor {
  StoredType dtype = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::byte const* data = nullptr;
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / stored_size(dtype); }
};

// Every element as double, exactly. A 64-bit integer that double cannot hold is refused.
std::vector<double> to_double(StoredTensor const& tensor);

// Every element as float, rounded to nearest once (beyond the range of float: infinity).
std::vector<float> to_float(StoredTensor const& tensor);

namespace impl {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte const* address) const noexcept;
};

// Refuses text that is not exactly one JSON value, that names a key twice in one object (readers disagree
// which one counts), or that nests absurdly deep. `where` begins the message.
void check_json(std::string_view json_text, std::string_view where);

}  // namespace impl

// An open file. Movable, not copyable; moving it leaves tensors where they are.
class Safetensors {
 public:
  explicit Safetensors(std::filesystem::path const& file);

  // The names of all tensors, sorted.
  std::vector<std::string> names() const;

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // An absent name is refused with the names that come nearest.
  StoredTensor const& tensor(std::string_view name) const;

  // What the writer noted about the file, as text.
  std::map<std::string, std::string> const& metadata() const { return metadata_; }

  std::filesystem::path const& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::unique_ptr<std::byte const, impl::Unmap> mapping_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace kfuse

#endif
