// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/check.hpp>
#include <kfuse/models/message.hpp>
#include <kfuse/models/safetensors.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kfuse {
namespace {

using impl::check;
using impl::listed;
using impl::text;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian, and read as they lie");
static_assert(sizeof(std::size_t) == 8, "offsets in safetensors files have 64 bits");

struct TypeFacts {
  StoredType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeFacts, 15> all_types = {{{StoredType::f64, "F64", 8},
                                                  {StoredType::f32, "F32", 4},
                                                  {StoredType::f16, "F16", 2},
                                                  {StoredType::bf16, "BF16", 2},
                                                  {StoredType::f8_e4m3, "F8_E4M3", 1},
                                                  {StoredType::f8_e5m2, "F8_E5M2", 1},
                                                  {StoredType::i64, "I64", 8},
                                                  {StoredType::i32, "I32", 4},
                                                  {StoredType::i16, "I16", 2},
                                                  {StoredType::i8, "I8", 1},
                                                  {StoredType::u64, "U64", 8},
                                                  {StoredType::u32, "U32", 4},
                                                  {StoredType::u16, "U16", 2},
                                                  {StoredType::u8, "U8", 1},
                                                  {StoredType::boolean, "BOOL", 1}}};

TypeFacts const& facts(StoredType type) {
  auto const is_it = [type](TypeFacts const& known) { return known.type == type; };
  auto const found = std::find_if(all_types.begin(), all_types.end(), is_it);
  check(found != all_types.end(), "StoredTensor: dtype", "is none of StoredType, name one of them");
  return *found;
}

// Text from a file as part of a message: in quotes, not long, and printable ASCII whatever it was.
std::string in_quotes(std::string_view found) {
  std::size_t constexpr longest = 120;
  char const* const hex = "0123456789abcdef";
  std::string result = "\"";
  for (char const c : found.substr(0, longest)) {
    bool const printable = c >= 0x20 && c < 0x7F;
    auto const code = static_cast<unsigned char>(c);
    result += printable ? std::string(1, c) : text("\\x", hex[code / 16], hex[code % 16]);
  }
  return result + (found.size() > longest ? "...\"" : "\"");
}

std::string brief(json const& value) {
  std::string const whole = value.dump(-1, ' ', true);
  return whole.size() <= 60 ? whole : text("a JSON ", value.type_name(), " of ", whole.size(), " characters");
}

std::string shown(std::vector<std::int64_t> const& shape) {
  std::size_t constexpr most = 8;
  std::span const first(shape.data(), std::min(shape.size(), most));
  return text("[", listed(first), shape.size() > most ? ", ..." : "", "]");
}

// ---------------------------------------------------------------- JSON, strictly

// Listens to the parser and keeps nothing but the keys of the objects that are open.
class StrictJson : public nlohmann::json_sax<json> {
 public:
  explicit StrictJson(std::string_view where) : where_(where) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, string_t const&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& key) override {
    check(open_.back().insert(key).second, where_, [&] {
      return text("the key ", in_quotes(key),
                  " stands twice in one JSON object (readers disagree which one counts), remove one");
    });
    last_key_ = key;
    return true;
  }

  bool parse_error(std::size_t position, std::string const&, json::exception const& error) override {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
    std::string const after = last_key_ ? " after the key " + in_quotes(*last_key_) : "";
    throw Error(text(where_, ": the JSON text is not valid at byte ", position, after, " (", in_quotes(reason),
                     "), write the file again"));
  }

 private:
  static constexpr std::size_t deepest = 64;

  bool enter() {
    check(open_.size() < deepest, where_, [] {
      return text("the JSON text nests deeper than ", deepest, " levels (no honest file does), write the file again");
    });
    open_.emplace_back();
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  std::string_view where_;
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> last_key_;
};

// ---------------------------------------------------------------- the file

std::string system_reason(int code) {
  return std::generic_category().message(code);
}

// A file descriptor that closes itself.
struct Descriptor {
  int value;
  explicit Descriptor(int opened) : value(opened) {}
  Descriptor(Descriptor const&) = delete;
  Descriptor& operator=(Descriptor const&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

std::size_t constexpr length_bytes = 8;
std::uint64_t constexpr longest_header = 100'000'000;  // the format's own limit

using Mapping = std::unique_ptr<std::byte const, impl::Unmap>;

Mapping map_file(std::filesystem::path const& file, std::string const& where) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer, before we could see that it is a pipe.
  Descriptor const opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  check(opened.value >= 0, where, [reason = errno] {
    return text("cannot be opened (", system_reason(reason), "), check the path and the permissions");
  });
  struct stat status {};
  check(::fstat(opened.value, &status) == 0, where,
        [reason = errno] { return text("cannot be examined (", system_reason(reason), "), check the file system"); });
  check(S_ISREG(status.st_mode), where,
        "is not a regular file (only those can be mapped into memory), name the .safetensors file itself");
  auto const bytes = static_cast<std::size_t>(status.st_size);
  check(bytes >= length_bytes, where, [&] {
    return text("is too small: ", bytes, " bytes (the header length alone takes ", length_bytes,
                "), get the file again");
  });
  void* const address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, opened.value, 0);
  check(address != MAP_FAILED, where, [reason = errno, bytes] {
    return text(bytes, " bytes cannot be mapped into memory (", system_reason(reason),
                "), free address space or raise its limit");
  });
  return Mapping(static_cast<std::byte const*>(address), impl::Unmap{bytes});
}

std::string_view header_text(std::byte const* file, std::size_t bytes, std::string const& where) {
  std::uint64_t length = 0;
  std::memcpy(&length, file, length_bytes);
  check(length <= longest_header, where, [&] {
    return text("claims a header of ", length, " bytes (the format allows ", longest_header,
                "), this is no safetensors file (a Git LFS pointer? another format?), get the real one");
  });
  check(length <= bytes - length_bytes, where, [&] {
    return text("claims a header of ", length, " bytes but has only ", bytes - length_bytes,
                " after the length (cut short?), get the file again");
  });
  std::string_view const header(reinterpret_cast<char const*>(file) + length_bytes, length);
  check(header.starts_with('{'), where,
        "the header does not start with '{' (the format demands it), this is no safetensors file, get the real one");
  return header;
}

// ---------------------------------------------------------------- the header

// One tensor as the header describes it; `begin` and `end` count bytes from the start of the data.
struct Entry {
  std::string name;
  StoredType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin;
  std::uint64_t end;
};

std::uint64_t whole_number(json const& value, std::string const& where, std::string_view what) {
  auto constexpr most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  check(value.is_number_unsigned() && value.get<std::uint64_t>() <= most, where, [&] {
    return text(what, " is ", brief(value), " (a whole number from 0 to ", most,
                " belongs there), write the file again");
  });
  return value.get<std::uint64_t>();
}

StoredType read_dtype(json const& value, std::string const& where) {
  std::string const wanted = value.is_string() ? value.get<std::string>() : "";
  auto const is_it = [&](TypeFacts const& known) { return known.name == wanted; };
  auto const found = std::find_if(all_types.begin(), all_types.end(), is_it);
  check(found != all_types.end(), where, [&] {
    std::vector<std::string_view> names;
    for (auto const& known : all_types) names.push_back(known.name);
    return text("dtype is ", brief(value), " (kfuse reads ", listed(names), "), convert the tensor to one of these");
  });
  return found->type;
}

std::vector<std::int64_t> read_shape(json const& value, std::string const& where) {
  check(value.is_array(), where,
        [&] { return text("shape is ", brief(value), " (a list of extents belongs there), write the file again"); });
  std::vector<std::int64_t> shape;
  for (auto const& extent : value) {
    shape.push_back(static_cast<std::int64_t>(whole_number(extent, where, "an extent of shape")));
  }
  return shape;
}

// Bytes that the shape needs. Zero extents are left out of the overflow check, so that it does not depend on their
// place: [0, 2^62, 2^62] is as wrong as [2^62, 2^62, 0].
std::uint64_t bytes_of(std::vector<std::int64_t> const& shape, StoredType dtype, std::string const& where) {
  std::uint64_t bytes = stored_size(dtype);
  bool empty = false;
  for (auto const extent : shape) {
    if (extent == 0) empty = true;
    if (extent <= 1) continue;
    auto const factor = static_cast<std::uint64_t>(extent);
    check(bytes <= std::numeric_limits<std::int64_t>::max() / factor, where, [&] {
      return text("shape ", shown(shape), " of ", name(dtype),
                  " needs more bytes than 63 bits can count, write the file again");
    });
    bytes *= factor;
  }
  return empty ? 0 : bytes;
}

void check_keys(json const& tensor, std::string const& where) {
  check(tensor.is_object(), where, [&] {
    return text("is ", brief(tensor),
                " (an object with dtype, shape and data_offsets belongs there), write the file again");
  });
  for (auto const* const key : {"dtype", "shape", "data_offsets"}) {
    check(tensor.contains(key), where,
          [&] { return text(key, " is missing (the format demands it), write the file again"); });
  }
  check(tensor.size() == 3, where,
        "has other keys than dtype, shape and data_offsets (they might change the meaning), write the file again");
}

Entry read_entry(std::string const& tensor_name, json const& tensor, std::uint64_t data_bytes,
                 std::string const& file) {
  std::string const where = file + ": tensor " + in_quotes(tensor_name);
  check_keys(tensor, where);
  StoredType const dtype = read_dtype(tensor["dtype"], where);
  auto shape = read_shape(tensor["shape"], where);

  json const& offsets = tensor["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2, where, [&] {
    return text("data_offsets is ", brief(offsets), " ([begin, end] belongs there), write the file again");
  });
  std::uint64_t const begin = whole_number(offsets[0], where, "begin of data_offsets");
  std::uint64_t const end = whole_number(offsets[1], where, "end of data_offsets");
  check(begin <= end, where, [&] {
    return text("data_offsets [", begin, ", ", end,
                "] run backwards (begin must not be behind end), write the file again");
  });
  check(end <= data_bytes, where, [&] {
    return text("data_offsets [", begin, ", ", end, "] end behind the data of ", data_bytes,
                " bytes (file cut short?), get the file again");
  });
  std::uint64_t const needed = bytes_of(shape, dtype, where);
  check(needed == end - begin, where, [&] {
    return text("data_offsets [", begin, ", ", end, "] hold ", end - begin, " bytes but shape ", shown(shape), " of ",
                name(dtype), " needs ", needed, ", write the file again");
  });
  return {tensor_name, dtype, std::move(shape), begin, end};
}

// Every byte of the data belongs to exactly one tensor.
void check_layout(std::vector<Entry>& entries, std::uint64_t data_bytes, std::string const& where) {
  std::sort(entries.begin(), entries.end(),
            [](Entry const& a, Entry const& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t reached = 0;
  Entry const* last = nullptr;
  for (auto const& entry : entries) {
    check(entry.begin >= reached, where, [&] {
      return text("tensors ", in_quotes(last->name), " [", last->begin, ", ", last->end, "] and ",
                  in_quotes(entry.name), " [", entry.begin, ", ", entry.end,
                  "] overlap (each byte belongs to one tensor), write the file again");
    });
    check(entry.begin == reached, where, [&] {
      return text("bytes [", reached, ", ", entry.begin, "] of the data, before tensor ", in_quotes(entry.name),
                  ", belong to no tensor (the format forbids holes), write the file again");
    });
    reached = entry.end;
    last = &entry;
  }
  check(reached == data_bytes, where, [&] {
    return text("has ", data_bytes - reached,
                " bytes behind the last tensor (the format forbids trailing bytes), write the file again");
  });
}

std::map<std::string, std::string> read_metadata(json const& value, std::string const& file) {
  std::string const where = file + ": __metadata__";
  check(value.is_object(), where, "is not an object (it maps text to text), write the file again");
  std::map<std::string, std::string> result;
  for (auto const& [key, entry] : value.items()) {
    check(entry.is_string(), where, [&refused = key, &found = entry] {
      return text(in_quotes(refused), " is ", brief(found), " (only text is allowed), write the file again");
    });
    result[key] = entry.get<std::string>();
  }
  return result;
}

// ---------------------------------------------------------------- absent names

// How many characters must be inserted, removed or replaced to turn a into b (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

template <class Tensors>
std::string nearest_names(Tensors const& tensors, std::string_view wanted) {
  // Bounds on the work, which no honest file reaches.
  std::size_t constexpr longest = 200, most = 5'000;
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (auto const& [candidate, tensor] : tensors) {
    bool const measured = ranked.size() < most && candidate.size() <= longest && wanted.size() <= longest;
    ranked.emplace_back(measured ? edit_distance(candidate, wanted) : longest, candidate);
  }
  std::size_t const kept = std::min<std::size_t>(3, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(kept), ranked.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kept; ++i) names.push_back(in_quotes(ranked[i].second));
  return listed(names);
}

// ---------------------------------------------------------------- conversions

// A float of `exponent_bits` and `mantissa_bits` after its sign, with infinities and NaN as IEEE 754 has them.
template <int exponent_bits, int mantissa_bits>
float small_float(std::uint32_t bits) {
  std::uint32_t constexpr most = (1u << exponent_bits) - 1, bias = most >> 1;
  std::uint32_t const sign = bits >> (exponent_bits + mantissa_bits) << 31;
  std::uint32_t const exponent = bits >> mantissa_bits & most;
  std::uint32_t const mantissa = bits & ((1u << mantissa_bits) - 1);
  if (exponent == 0) {  // zero or subnormal: mantissa in units of the smallest one
    float const size = std::ldexp(static_cast<float>(mantissa), 1 - static_cast<int>(bias) - mantissa_bits);
    return sign ? -size : size;
  }
  std::uint32_t const wide_exponent = exponent == most ? 255 : exponent - bias + 127;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << (23 - mantissa_bits));
}

// Finite up to 448: all ones is NaN, there is no infinity, and the highest exponent is an ordinary one.
float e4m3_float(std::uint32_t bits) {
  bool const negative = bits & 0x80;
  if ((bits & 0x7F) == 0x7F) return std::copysign(std::numeric_limits<float>::quiet_NaN(), negative ? -1.f : 1.f);
  if ((bits & 0x78) != 0x78) return small_float<4, 3>(bits);
  float const size = std::ldexp(static_cast<float>(8 + (bits & 7)), 5);
  return negative ? -size : size;
}

template <class Number, class Stored, class Convert>
std::vector<Number> converted(StoredTensor const& tensor, Stored, Convert const& convert) {
  std::vector<Number> result(tensor.bytes / sizeof(Stored));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, tensor.data + i * sizeof(Stored), sizeof(Stored));
    result[i] = convert(stored);
  }
  return result;
}

// Floats are rounded, because that is what asking for float means. Double promises the exact value.
template <class Number, class Integer>
Number from_wide_integer(Integer value) {
  if constexpr (std::is_same_v<Number, double>) {
    auto constexpr exact = std::int64_t{1} << 53;
    check(std::cmp_less_equal(value, exact) && std::cmp_greater_equal(value, -exact), "to_double", [&] {
      return text("an element is ", value,
                  " (double holds whole numbers exactly up to 2^53), read it as an integer through StoredTensor::data");
    });
  }
  return static_cast<Number>(value);
}

template <class Number>
std::vector<Number> numbers(StoredTensor const& tensor) {
  auto const plain = [](auto stored) { return static_cast<Number>(stored); };
  auto const wide = [](auto stored) { return from_wide_integer<Number>(stored); };
  switch (tensor.dtype) {
    case StoredType::f64:
      return converted<Number>(tensor, double{}, plain);
    case StoredType::f32:
      return converted<Number>(tensor, float{}, plain);
    case StoredType::f16:
      return converted<Number>(tensor, std::uint16_t{}, [](auto bits) { return Number{small_float<5, 10>(bits)}; });
    case StoredType::bf16:
      return converted<Number>(tensor, std::uint16_t{},
                               [](std::uint32_t bits) { return Number{std::bit_cast<float>(bits << 16)}; });
    case StoredType::f8_e4m3:
      return converted<Number>(tensor, std::uint8_t{}, [](auto bits) { return Number{e4m3_float(bits)}; });
    case StoredType::f8_e5m2:
      return converted<Number>(tensor, std::uint8_t{}, [](auto bits) { return Number{small_float<5, 2>(bits)}; });
    case StoredType::i64:
      return converted<Number>(tensor, std::int64_t{}, wide);
    case StoredType::i32:
      return converted<Number>(tensor, std::int32_t{}, plain);
    case StoredType::i16:
      return converted<Number>(tensor, std::int16_t{}, plain);
    case StoredType::i8:
      return converted<Number>(tensor, std::int8_t{}, plain);
    case StoredType::u64:
      return converted<Number>(tensor, std::uint64_t{}, wide);
    case StoredType::u32:
      return converted<Number>(tensor, std::uint32_t{}, plain);
    case StoredType::u16:
      return converted<Number>(tensor, std::uint16_t{}, plain);
    case StoredType::u8:
      return converted<Number>(tensor, std::uint8_t{}, plain);
    case StoredType::boolean:
      return converted<Number>(tensor, std::uint8_t{}, [](auto stored) { return Number{stored != 0 ? 1.f : 0.f}; });
  }
  throw Error("StoredTensor: dtype: is none of StoredType, name one of them");
}

}  // namespace

std::string_view name(StoredType type) {
  return facts(type).name;
}

std::size_t stored_size(StoredType type) {
  return facts(type).bytes;
}

std::vector<double> to_double(StoredTensor const& tensor) {
  return numbers<double>(tensor);
}

std::vector<float> to_float(StoredTensor const& tensor) {
  return numbers<float>(tensor);
}

void impl::Unmap::operator()(std::byte const* address) const noexcept {
  ::munmap(const_cast<std::byte*>(address), bytes);
}

void impl::check_json(std::string_view json_text, std::string_view where) {
  // The parser takes a NUL byte for the end of the text, and would never see what follows it.
  check(json_text.find('\0') == json_text.npos, where, "the JSON text contains a NUL byte, write the file again");
  StrictJson listener(where);
  json::sax_parse(json_text, &listener);
}

Safetensors::Safetensors(std::filesystem::path const& file) : file_(file) {
  std::string const where = "safetensors: " + file.string();
  mapping_ = map_file(file, where);
  std::size_t const bytes = mapping_.get_deleter().bytes;
  std::string_view const header_json = header_text(mapping_.get(), bytes, where);
  std::byte const* const data = mapping_.get() + length_bytes + header_json.size();
  std::uint64_t const data_bytes = bytes - length_bytes - header_json.size();

  impl::check_json(header_json, where);
  json const header = json::parse(header_json);
  std::vector<Entry> entries;
  for (auto const& [key, value] : header.items()) {
    if (key == "__metadata__") {
      metadata_ = read_metadata(value, where);
    } else {
      entries.push_back(read_entry(key, value, data_bytes, where));
    }
  }
  check_layout(entries, data_bytes, where);
  for (auto& entry : entries) {
    StoredTensor tensor{entry.dtype, std::move(entry.shape), data + entry.begin, entry.end - entry.begin};
    tensors_.emplace(std::move(entry.name), std::move(tensor));
  }
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> result;
  for (auto const& [key, tensor] : tensors_) result.push_back(key);
  return result;
}

StoredTensor const& Safetensors::tensor(std::string_view name) const {
  auto const found = tensors_.find(name);
  check(found != tensors_.end(), "safetensors: " + file_.string(), [&] {
    if (tensors_.empty()) return text("has no tensor ", in_quotes(name), " (it has none at all), open another file");
    return text("has no tensor ", in_quotes(name), " (it has ", tensors_.size(), "), the nearest names are ",
                nearest_names(tensors_, name));
  });
  return found->second;
}

}  // namespace kfuse
