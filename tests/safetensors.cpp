// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/check.hpp>
#include <kfuse/models/message.hpp>
#include <kfuse/models/safetensors.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "temporary_folder.hpp"
#include <sys/stat.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using kfuse::Safetensors;
using kfuse::StoredTensor;
using kfuse::StoredType;
using kfuse::impl::text;
using kfuse::test::TemporaryFolder;

fs::path write_file(TemporaryFolder const& folder, std::string const& bytes,
                    std::string const& name = "x.safetensors") {
  return folder.write(name, bytes);
}

std::string bytes_of(std::uint64_t value, int count = 8) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += char(value >> (8 * i) & 0xFF);
  return bytes;
}

template <class Number>
std::string bytes_of(std::vector<Number> const& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// A file of this header and data, with a true header length.
std::string file_of(std::string const& header, std::string const& data = "") {
  return bytes_of(header.size()) + header + data;
}

std::string tensor_json(std::string const& name, std::string const& dtype, std::string const& shape, std::size_t begin,
                        std::size_t end) {
  return text(R"(")", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", begin, ",", end,
              "]}");
}

// A JSON object of these entries.
template <class... Entries>
std::string object(Entries const&... entries) {
  return text("{", kfuse::impl::listed(std::initializer_list<std::string>{entries...}), "}");
}

// The message of the kfuse::Error that `work` throws; empty if it throws none. Other exceptions fail the test.
template <class Work>
std::string refusal(Work const& work) {
  try {
    work();
  } catch (kfuse::Error const& error) {
    return error.what();
  }
  return {};
}

std::string refusal_of_file(std::string const& bytes) {
  TemporaryFolder const folder;
  auto const path = write_file(folder, bytes);
  std::string const message = refusal([&] { Safetensors const file(path); });
  if (!message.empty()) CHECK(message.find(path.string()) != message.npos);
  return message;
}

std::string refusal_of_header(std::string const& header, std::string const& data = "") {
  return refusal_of_file(file_of(header, data));
}

bool mentions(std::string const& message, std::string const& part) {
  INFO(message);
  bool const found = message.find(part) != message.npos;
  CHECK(found);
  return found;
}

// A file of one tensor "x" of these bytes.
Safetensors one_tensor(TemporaryFolder const& folder, std::string const& dtype, std::string const& data,
                       std::size_t count) {
  return Safetensors(
      write_file(folder, file_of(object(tensor_json("x", dtype, text("[", count, "]"), 0, data.size())), data)));
}

template <class Number>
void check_whole_numbers(std::string const& dtype, StoredType type) {
  CAPTURE(dtype);
  using Limits = std::numeric_limits<Number>;
  bool constexpr wide = sizeof(Number) == 8;
  Number const least = wide ? Number(Limits::is_signed ? -(std::int64_t{1} << 53) : 0) : Limits::min();
  Number const most = wide ? Number(std::int64_t{1} << 53) : Limits::max();
  std::vector<Number> const numbers = {0, 1, 2, least, most};
  TemporaryFolder const folder;
  auto const file = one_tensor(folder, dtype, bytes_of(numbers), numbers.size());
  CHECK(file.tensor("x").dtype == type);
  auto const doubles = kfuse::to_double(file.tensor("x"));
  auto const floats = kfuse::to_float(file.tensor("x"));
  REQUIRE(doubles.size() == numbers.size());
  REQUIRE(floats.size() == numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    CHECK(doubles[i] == double(numbers[i]));
    CHECK(floats[i] == float(numbers[i]));
  }
}

// A float of a sign, exponent_bits and mantissa_bits, by its definition.
double by_definition(unsigned bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  int const exponent = int(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  int const mantissa = int(bits) & ((1 << mantissa_bits) - 1);
  int const bias = (1 << (exponent_bits - 1)) - 1;
  double const sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
  bool const top = exponent == (1 << exponent_bits) - 1;
  if (top && has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
  if (top && mantissa == (1 << mantissa_bits) - 1) return NAN;
  double const fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

// Every bit pattern of a small float.
template <class Bits>
void check_small_floats(std::string const& dtype, int exponent_bits, int mantissa_bits, bool has_infinity) {
  CAPTURE(dtype);
  std::vector<Bits> patterns(std::size_t{1} << (8 * sizeof(Bits)));
  std::iota(patterns.begin(), patterns.end(), Bits{0});
  TemporaryFolder const folder;
  auto const file = one_tensor(folder, dtype, bytes_of(patterns), patterns.size());
  auto const doubles = kfuse::to_double(file.tensor("x"));
  auto const floats = kfuse::to_float(file.tensor("x"));
  REQUIRE(doubles.size() == patterns.size());
  REQUIRE(floats.size() == patterns.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    double const expected = by_definition(patterns[i], exponent_bits, mantissa_bits, has_infinity);
    auto const equal = [expected](double value) {
      return std::isnan(expected) ? std::isnan(value)
                                  : value == expected && std::signbit(value) == std::signbit(expected);
    };
    wrong += !equal(doubles[i]) || !equal(double(floats[i]));
  }
  CHECK(wrong == 0);
}

fs::path test_data(std::string const& name) {
  char const* const folder = std::getenv("KFUSE_TEST_DATA");
  REQUIRE_MESSAGE(folder != nullptr, "set KFUSE_TEST_DATA to the folder tests/data");
  return fs::path(folder) / name;
}

// What holds for every file that is accepted: the tensors are as long as their shapes say and fill the data.
void check_consistent(Safetensors const& file, std::string const& bytes) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::size_t total = 0;
  unsigned sum = 0;
  for (auto const& name : file.names()) {
    StoredTensor const& tensor = file.tensor(name);
    std::size_t elements = 1;
    for (auto const extent : tensor.shape) elements *= std::size_t(extent);
    if (elements * kfuse::stored_size(tensor.dtype) != tensor.bytes) FAIL("shape and bytes disagree");
    for (std::size_t i = 0; i < tensor.bytes; ++i) sum += unsigned(tensor.data[i]);
    refusal([&] { kfuse::to_double(tensor); });
    total += tensor.bytes;
  }
  if (8 + header + total != bytes.size()) FAIL("tensors do not fill the data");
  CHECK(sum < 256 * (total + 1));
}

// A small file with everything in it: metadata, an empty tensor, a scalar, several types, unaligned data,
// padding.
std::string small_file() {
  std::string const header =
      object(R"("__metadata__":{"format":"pt"})", tensor_json("a", "U8", "[3]", 0, 3),
             tensor_json("b.weight", "F32", "[2,1]", 3, 11), tensor_json("none", "F64", "[0,4]", 11, 11),
             tensor_json("s", "BF16", "[]", 11, 13));
  std::string const data = std::string("\x01\x02\x03", 3) + bytes_of(std::vector<float>{1.5f, -2.f}) + "\x80\x3F";
  return file_of(header + "  ", data);
}

// Opens the file; it is either refused properly or consistent.
void survive(TemporaryFolder const& folder, std::string const& bytes) {
  auto const path = write_file(folder, bytes);
  std::string const message = refusal([&] { check_consistent(Safetensors(path), bytes); });
  if (!message.empty() && message.find(path.string()) == message.npos) FAIL(message);
}

}  // namespace

TEST_SUITE_BEGIN("safetensors");

TEST_CASE("numbers of every type come back exactly") {
  SUBCASE("doubles and floats") {
    TemporaryFolder const folder;
    std::vector<double> const doubles = {0.1, -0.0, 5e-324, 1.7e308, INFINITY, NAN, 1.0 + 1e-15};
    auto const wide = one_tensor(folder, "F64", bytes_of(doubles), doubles.size());
    auto const same = kfuse::to_double(wide.tensor("x"));
    REQUIRE(same.size() == doubles.size());
    CHECK(std::memcmp(same.data(), doubles.data(), doubles.size() * sizeof(double)) == 0);

    std::vector<float> const floats = {0.1f, -0.f, 1e-45f, 3.4e38f, -INFINITY};
    TemporaryFolder const other;
    auto const narrow = one_tensor(other, "F32", bytes_of(floats), floats.size());
    CHECK(kfuse::to_float(narrow.tensor("x")) == floats);
    CHECK(kfuse::to_double(narrow.tensor("x")) == std::vector<double>(floats.begin(), floats.end()));
  }
  SUBCASE("16-bit floats, all bit patterns") {
    check_small_floats<std::uint16_t>("F16", 5, 10, true);
    check_small_floats<std::uint16_t>("BF16", 8, 7, true);
  }
  SUBCASE("8-bit floats, all bit patterns") {
    check_small_floats<std::uint8_t>("F8_E4M3", 4, 3, false);
    check_small_floats<std::uint8_t>("F8_E5M2", 5, 2, true);
  }
  SUBCASE("whole numbers") {
    check_whole_numbers<std::int64_t>("I64", StoredType::i64);
    check_whole_numbers<std::int32_t>("I32", StoredType::i32);
    check_whole_numbers<std::int16_t>("I16", StoredType::i16);
    check_whole_numbers<std::int8_t>("I8", StoredType::i8);
    check_whole_numbers<std::uint64_t>("U64", StoredType::u64);
    check_whole_numbers<std::uint32_t>("U32", StoredType::u32);
    check_whole_numbers<std::uint16_t>("U16", StoredType::u16);
    check_whole_numbers<std::uint8_t>("U8", StoredType::u8);
  }
  SUBCASE("truth values") {
    TemporaryFolder const folder;
    auto const file = one_tensor(folder, "BOOL", std::string("\x00\x01\x01", 3), 3);
    CHECK(kfuse::to_double(file.tensor("x")) == std::vector<double>{0, 1, 1});
  }
}

TEST_CASE("doubles are rounded to the nearest float") {
  TemporaryFolder const folder;
  double const half_step = std::ldexp(1.0, -24);
  std::vector<double> const numbers = {1 + half_step, 1 + 1.01 * half_step, 1 + 3 * half_step, 1e300, 0.1};
  auto const file = one_tensor(folder, "F64", bytes_of(numbers), numbers.size());
  std::vector<float> const expected = {1, std::nextafter(1.f, 2.f), 1 + 4 * float(half_step), INFINITY, 0.1f};
  CHECK(kfuse::to_float(file.tensor("x")) == expected);
}

TEST_CASE("a whole number that double cannot hold is refused, and rounded once for float") {
  std::int64_t const odd = (std::int64_t{1} << 53) + 1;
  for (std::string const dtype : {"I64", "U64"}) {
    TemporaryFolder const folder;
    auto const file = one_tensor(folder, dtype, bytes_of(std::vector<std::int64_t>{odd}), 1);
    mentions(refusal([&] { kfuse::to_double(file.tensor("x")); }), "9007199254740993");
    CHECK(kfuse::to_float(file.tensor("x")) == std::vector<float>{9007199254740992.f});
  }
  TemporaryFolder const folder;
  std::vector<std::int64_t> const extremes = {std::numeric_limits<std::int64_t>::min()};
  auto const file = one_tensor(folder, "I64", bytes_of(extremes), 1);
  mentions(refusal([&] { kfuse::to_double(file.tensor("x")); }), "-9223372036854775808");
}

TEST_CASE("names, shapes, types and metadata are those of the file") {
  TemporaryFolder const folder;
  Safetensors const file(write_file(folder, small_file()));
  CHECK(file.names() == std::vector<std::string>{"a", "b.weight", "none", "s"});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.contains("b.weight"));
  CHECK_FALSE(file.contains("b"));
  CHECK_FALSE(file.contains("__metadata__"));
  CHECK(file.tensor("b.weight").shape == std::vector<std::int64_t>{2, 1});
  CHECK(file.tensor("b.weight").dtype == StoredType::f32);
  CHECK(file.tensor("b.weight").bytes == 8);
  CHECK(file.tensor("b.weight").elements() == 2);
  CHECK(kfuse::name(StoredType::bf16) == "BF16");
  CHECK(kfuse::stored_size(StoredType::i64) == 8);
}

TEST_CASE("unaligned data is read") {
  TemporaryFolder const folder;
  Safetensors const file(write_file(folder, small_file()));
  CHECK(kfuse::to_double(file.tensor("a")) == std::vector<double>{1, 2, 3});
  CHECK(kfuse::to_double(file.tensor("b.weight")) == std::vector<double>{1.5, -2});
  // Wherever the data starts, the floats behind the bytes "a" are unaligned in one of two headers.
  auto const misaligned = [](StoredTensor const& t) { return reinterpret_cast<std::uintptr_t>(t.data) % 4 != 0; };
  std::string const header = object(tensor_json("a", "U8", "[1]", 0, 1), tensor_json("b", "F64", "[1]", 1, 9));
  std::string const data = text("\x07", bytes_of(std::vector<double>{0.3}));
  int unaligned = 0;
  for (std::string const padding : {"", " "}) {
    TemporaryFolder const other;
    Safetensors const shifted(write_file(other, file_of(header + padding, data)));
    unaligned += misaligned(shifted.tensor("b"));
    CHECK(kfuse::to_double(shifted.tensor("b")) == std::vector<double>{0.3});
    CHECK(kfuse::to_float(shifted.tensor("b")) == std::vector<float>{0.3f});
  }
  CHECK(unaligned > 0);
}

TEST_CASE("a scalar has one element and an empty tensor none") {
  TemporaryFolder const folder;
  Safetensors const file(write_file(folder, small_file()));
  CHECK(file.tensor("s").shape.empty());
  CHECK(kfuse::to_double(file.tensor("s")) == std::vector<double>{1});
  CHECK(file.tensor("none").shape == std::vector<std::int64_t>{0, 4});
  CHECK(file.tensor("none").elements() == 0);
  CHECK(kfuse::to_double(file.tensor("none")).empty());
  CHECK(kfuse::to_float(file.tensor("none")).empty());
}

TEST_CASE("a file without tensors is a file") {
  TemporaryFolder const folder;
  Safetensors const file(write_file(folder, file_of("{}")));
  CHECK(file.names().empty());
  CHECK(file.metadata().empty());
  mentions(refusal([&] { file.tensor("x"); }), "none at all");
}

TEST_CASE("moving the file leaves its tensors where they are") {
  static_assert(!std::is_copy_constructible_v<Safetensors> && !std::is_copy_assignable_v<Safetensors>);
  TemporaryFolder const folder;
  Safetensors first(write_file(folder, small_file()));
  StoredTensor const before = first.tensor("b.weight");
  Safetensors second(std::move(first));
  CHECK(second.tensor("b.weight").data == before.data);
  Safetensors third(write_file(folder, file_of("{}"), "empty.safetensors"));
  third = std::move(second);
  CHECK(kfuse::to_double(third.tensor("b.weight")) == std::vector<double>{1.5, -2});
  CHECK(kfuse::to_double(before) == std::vector<double>{1.5, -2});
}

TEST_CASE("an absent name is refused with its nearest neighbours") {
  TemporaryFolder const folder;
  std::string const header =
      object(tensor_json("model.layers.0.mlp.up_proj.weight", "U8", "[1]", 0, 1),
             tensor_json("model.layers.0.mlp.gate_proj.weight", "U8", "[1]", 1, 2),
             tensor_json("model.layers.1.mlp.up_proj.weight", "U8", "[1]", 2, 3),
             tensor_json("lm_head.weight", "U8", "[1]", 3, 4), tensor_json("zzz", "U8", "[1]", 4, 5));
  Safetensors const file(write_file(folder, file_of(header, "12345")));
  std::string const message = refusal([&] { file.tensor("layers.0.mlp.up_proj.weight"); });
  mentions(message, "\"layers.0.mlp.up_proj.weight\"");
  mentions(message, "nearest names are \"model.layers.0.mlp.up_proj.weight\"");
  mentions(message, "it has 5");
  CHECK(message.find("zzz") == message.npos);
  mentions(refusal([&] { file.tensor(std::string(10'000, 'x')); }), "nearest");
}

TEST_CASE("what is not a file of its own is refused") {
  TemporaryFolder const folder;
  auto const open = [&](fs::path const& path) { return refusal([&] { Safetensors const file(path); }); };
  mentions(open(folder.path("absent.safetensors")), "cannot be opened");
  mentions(open(folder.path("absent.safetensors")), "absent.safetensors");
  mentions(open(""), "cannot be opened");
  mentions(open(folder.path("")), "not a regular file");
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  mentions(open(folder.path("pipe")), "not a regular file");
}

TEST_CASE("a file that is too small or not of this format is refused") {
  mentions(refusal_of_file(""), "too small: 0 bytes");
  mentions(refusal_of_file("1234567"), "too small: 7 bytes");
  mentions(refusal_of_file(bytes_of(0)), "does not start with '{'");
  mentions(refusal_of_file(bytes_of(2)), "header of 2 bytes but has only 0");
  mentions(refusal_of_file(bytes_of(100) + "{}"), "header of 100 bytes but has only 2");
  mentions(refusal_of_file(bytes_of(100'000'001) + "{}"), "header of 100000001 bytes (the format allows 100000000)");
  mentions(refusal_of_file(bytes_of(std::numeric_limits<std::uint64_t>::max()) + "{}"), "the format allows");
  mentions(refusal_of_file("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer");
  mentions(refusal_of_header(" {}"), "does not start with '{'");
  mentions(refusal_of_header("[]"), "does not start with '{'");
}

TEST_CASE("a header that is not strict JSON is refused") {
  mentions(refusal_of_header("{"), "not valid");
  mentions(refusal_of_header("{}}"), "not valid");
  mentions(refusal_of_header("{} x"), "not valid");
  mentions(refusal_of_header("{\"a\":12x}"), "after the key \"a\"");
  mentions(refusal_of_header("{\"a\":1e999}"), "not valid");
  mentions(refusal_of_header("{\"\xFF\":1}"), "not valid");
  mentions(refusal_of_header(std::string("{}\0{", 4)), "NUL");
  std::string const deep(100'000, '[');
  mentions(refusal_of_header("{\"a\":" + deep), "nests deeper");
}

TEST_CASE("a name that stands twice is refused, wherever it stands") {
  std::string const x = tensor_json("x", "U8", "[1]", 0, 1);
  mentions(refusal_of_header(object(x, x), "1"), "key \"x\" stands twice");
  mentions(refusal_of_header(R"({"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "1"),
           "key \"dtype\" stands twice");
  mentions(refusal_of_header(R"({"__metadata__":{},"__metadata__":{}})"), "stands twice");
  mentions(refusal_of_header(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0078":{}})", "1"),
           "key \"x\" stands twice");
}

TEST_CASE("a tensor that is not described by type, shape and offsets is refused by name") {
  auto const refused = [](std::string const& description, std::string const& problem) {
    std::string const message = refusal_of_header("{\"the.tensor\":" + description + "}", "1234");
    mentions(message, "tensor \"the.tensor\"");
    mentions(message, problem);
  };
  refused("1", "an object");
  refused("null", "an object");
  refused("[]", "an object");
  refused("{}", "dtype is missing");
  refused(R"({"dtype":"F32","shape":[1]})", "data_offsets is missing");
  refused(R"({"dtype":"F32","data_offsets":[0,4]})", "shape is missing");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})", "other keys");
  refused(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", "dtype is \"F33\"");
  refused(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})", "dtype is \"f32\"");
  refused(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})", "dtype is 7");
  refused(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", "shape is 1");
  refused(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "is -1");
  refused(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "is 1.0");
  refused(R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})", "is \"1\"");
  refused(R"({"dtype":"F32","shape":[null],"data_offsets":[0,4]})", "is null");
  refused(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})", "is 9223372036854775808");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "data_offsets is [0]");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", "data_offsets is [0,4,8]");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":{"0":4}})", "data_offsets is");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", "begin of data_offsets is -4");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4e0]})", "end of data_offsets is 4.0");
}

TEST_CASE("a shape that overflows is refused, wherever its zeros stand") {
  for (std::string const shape :
       {"[4611686018427387904,4611686018427387904]", "[0,4611686018427387904,4611686018427387904]",
        "[4611686018427387904,4611686018427387904,0]", "[4294967296,4294967296]", "[2305843009213693952]",
        "[9223372036854775807]"}) {
    mentions(refusal_of_header(object(tensor_json("x", "F32", shape, 0, 0))), "63 bits");
  }
}

TEST_CASE("offsets that lie are refused") {
  std::string const four = "1234", eight = "12345678";
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[1]", 4, 0)), four), "run backwards");
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[1]", 0, 4)), "123"), "end behind the data of 3");
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[1]", 9'000'000'000, 9'000'000'004)), four),
           "end behind the data");
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[2]", 0, 4)), four),
           "hold 4 bytes but shape [2] of F32 needs 8");
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[]", 0, 8)), eight), "needs 4");
  mentions(refusal_of_header(object(tensor_json("x", "F32", "[0]", 0, 4)), four), "needs 0");
  mentions(refusal_of_header(object(tensor_json("x", "U8", text("[", std::string(2000, '1'), "]"), 0, 4)), four),
           "after the key \"shape\"");
}

TEST_CASE("tensors that overlap, and bytes that belong to nobody, are refused") {
  auto const two = [](std::size_t a0, std::size_t a1, std::size_t b0, std::size_t b1) {
    auto const length = [](std::size_t n) { return text("[", n, "]"); };
    return object(tensor_json("a", "U8", length(a1 - a0), a0, a1), tensor_json("b", "U8", length(b1 - b0), b0, b1));
  };
  mentions(refusal_of_header(two(0, 3, 2, 4), "1234"), "tensors \"a\" [0, 3] and \"b\" [2, 4] overlap");
  mentions(refusal_of_header(two(2, 4, 0, 3), "1234"), "overlap");
  mentions(refusal_of_header(two(0, 4, 0, 4), "1234"), "overlap");
  mentions(refusal_of_header(two(0, 4, 1, 2), "1234"), "overlap");
  mentions(refusal_of_header(two(0, 4, 2, 2), "1234"), "overlap");
  mentions(refusal_of_header(two(0, 1, 2, 4), "1234"), "bytes [1, 2] of the data, before tensor \"b\"");
  mentions(refusal_of_header(two(1, 2, 2, 4), "1234"), "bytes [0, 1]");
  mentions(refusal_of_header(two(0, 1, 1, 3), "1234"), "1 bytes behind the last tensor");
  mentions(refusal_of_header("{}", "1"), "1 bytes behind the last tensor");
  CHECK(refusal_of_header(two(2, 4, 0, 2), "1234").empty());  // in the order of the file, not of the names
  CHECK(refusal_of_header(two(0, 4, 4, 4), "1234").empty());
}

TEST_CASE("metadata that is not text is refused") {
  mentions(refusal_of_header(R"({"__metadata__":[]})"), "__metadata__: is not an object");
  mentions(refusal_of_header(R"({"__metadata__":{"step":3}})"), "\"step\" is 3");
  mentions(refusal_of_header(R"({"__metadata__":{"a":{"b":"c"}}})"), "only text");
}

TEST_CASE("messages stay short and printable whatever the file says") {
  std::string const long_name(50'000, 'n');
  std::string const message = refusal_of_header("{\"" + long_name + "\\u0007\":{}}");
  CHECK(message.size() < 600);
  std::string const bell = refusal_of_header("{\"\\u0007\\u00e4\":{}}");
  mentions(bell, "\\x07\\xc3\\xa4");
  std::string many = "[1";
  for (int i = 0; i < 10'000; ++i) many += ",1";
  CHECK(refusal_of_header(object(tensor_json("x", "F32", many + "]", 0, 0))).size() < 600);
  CHECK(refusal_of_header("{\"x\":[" + std::string(40'000, '"') + "]}").size() < 600);
}

TEST_CASE("a file cut at any byte is refused") {
  TemporaryFolder const folder;
  std::string const bytes = small_file();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    auto const path = write_file(folder, bytes.substr(0, length));
    CHECK_FALSE(refusal([&] { Safetensors const file(path); }).empty());
  }
}

TEST_CASE("a file with any byte changed, dropped or doubled is refused or consistent") {
  TemporaryFolder const folder;
  std::string const bytes = small_file();
  std::string const hostile = std::string("\0\xFF{}[],:\"\\-.eE09 ntf/u", 22);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    CAPTURE(at);
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = char(changed[at] ^ (1 << bit));
      survive(folder, changed);
    }
    for (char const replacement : hostile) {
      std::string changed = bytes;
      changed[at] = replacement;
      survive(folder, changed);
    }
    survive(folder, bytes.substr(0, at) + bytes.substr(at + 1));
    survive(folder, bytes.substr(0, at + 1) + bytes.substr(at));
  }
}

TEST_CASE("the same with the header length kept true, so that the damage reaches the JSON") {
  TemporaryFolder const folder;
  std::string const bytes = small_file();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::string const header = bytes.substr(8, length), data = bytes.substr(8 + length);
  for (std::size_t at = 0; at < header.size(); ++at) {
    CAPTURE(at);
    survive(folder, file_of(header.substr(0, at) + header.substr(at + 1), data));
    survive(folder, file_of(header.substr(0, at), data));
    for (std::string const inserted : {"0", "9", "-", "\"", "{", "}", "[", "]", ",", "99999999999999999999", "1e9"}) {
      survive(folder, file_of(header.substr(0, at) + inserted + header.substr(at), data));
    }
  }
}

TEST_CASE("the reference files are read whole") {
  for (std::string const name : {"minilm.safetensors", "llama_tiny.safetensors", "gpt2_tiny.safetensors"}) {
    CAPTURE(name);
    Safetensors const file(test_data(name));
    CHECK(file.names().size() >= 10);
    for (auto const& tensor_name : file.names()) {
      CAPTURE(tensor_name);
      auto const numbers = kfuse::to_double(file.tensor(tensor_name));
      CHECK(numbers.size() == file.tensor(tensor_name).elements());
      bool finite = true;
      for (double const number : numbers) finite = finite && std::isfinite(number);
      CHECK(finite);
    }
  }
  Safetensors const minilm(test_data("minilm.safetensors"));
  CHECK(minilm.tensor("hidden_state.6").shape == std::vector<std::int64_t>{3, 22, 384});
  CHECK(minilm.tensor("hidden_state.6").dtype == StoredType::f64);
  CHECK(minilm.metadata().at("layer_norm_eps") == "1e-12");
  auto const ids = kfuse::to_double(minilm.tensor("input_ids"));
  CHECK(ids[0] == 101);                                                          // [CLS]
  auto const embedding = kfuse::to_double(minilm.tensor("sentence_embedding"));  // rows of length one
  double square = 0;
  for (std::size_t i = 0; i < 384; ++i) square += embedding[i] * embedding[i];
  CHECK(square == doctest::Approx(1).epsilon(1e-12));
}

TEST_SUITE_END();
