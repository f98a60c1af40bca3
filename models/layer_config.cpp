// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/check.hpp>
#include <kfuse/models/layer_config.hpp>
#include <kfuse/models/message.hpp>
#include <kfuse/models/safetensors.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace kfuse {
namespace {

using impl::check;
using impl::listed;
using impl::text;
using nlohmann::json;

// ---------------------------------------------------------------- presets

std::array<std::pair<std::string_view, LayerConfig>, 5> const presets = {{
    {"llama-3-8b",
     {.family = Family::llama,
      .hidden = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .intermediate = 14336,
      .norm_epsilon = 1e-5,
      .rope_theta = 500000,
      .max_positions = 8192,
      .vocabulary = 128256,
      .layers = 32}},
    {"llama-3.2-1b",
     {.family = Family::llama,
      .hidden = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 64,
      .intermediate = 8192,
      .norm_epsilon = 1e-5,
      .rope_theta = 500000,
      .rope_scaling = Llama3Scaling{.factor = 32},
      .max_positions = 131072,
      .vocabulary = 128256,
      .layers = 16}},
    {"gpt2",
     {.family = Family::gpt2,
      .hidden = 768,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 64,
      .intermediate = 3072,
      .norm_epsilon = 1e-5,
      .max_positions = 1024,
      .vocabulary = 50257,
      .layers = 12}},
    {"bert-base",
     {.family = Family::bert,
      .hidden = 768,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 64,
      .intermediate = 3072,
      .norm_epsilon = 1e-12,
      .max_positions = 512,
      .vocabulary = 30522,
      .layers = 12}},
    {"minilm",  // sentence-transformers/all-MiniLM-L6-v2
     {.family = Family::bert,
      .hidden = 384,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 32,
      .intermediate = 1536,
      .norm_epsilon = 1e-12,
      .max_positions = 512,
      .vocabulary = 30522,
      .layers = 6}},
}};

auto find_preset(std::string_view name) {
  return std::find_if(presets.begin(), presets.end(), [name](auto const& known) { return known.first == name; });
}

// ---------------------------------------------------------------- validation

// Checks of one config; `where` says whose.
class Validator {
 public:
  Validator(LayerConfig const& config, std::string_view where) : c_(config), where_(where) {}

  void all() const {
    family();
    sizes();
    widths();
    heads();
    constants();
    if (c_.family == Family::llama) {
      rope();
    } else {
      learned_positions();
    }
  }

  void rope() const {
    require(c_.family == Family::llama, "family", "is ", name(c_.family),
            " (only llama rotates positions), use a llama config");
    positive("head_dim", c_.head_dim);
    require(c_.head_dim % 2 == 0, "head_dim", "is ", c_.head_dim,
            " (rope turns pairs of values), choose an even number");
    impl::RopeChecks({c_.rope_theta, c_.head_dim, c_.rope_scaling}, where_).all();
  }

 private:
  template <class... Parts>
  void require(bool ok, std::string_view field, Parts const&... problem) const {
    check(ok, where_, [&] { return text(field, " ", problem...); });
  }

  void positive(std::string_view field, int value) const {
    require(value > 0, field, "is ", value, " (a size is at least 1), choose a positive whole number");
  }

  void family() const {
    bool const known = c_.family == Family::llama || c_.family == Family::gpt2 || c_.family == Family::bert;
    require(known, "family", "is none of Family, choose llama, gpt2 or bert");
  }

  void sizes() const {
    positive("hidden", c_.hidden);
    positive("heads", c_.heads);
    positive("kv_heads", c_.kv_heads);
    positive("head_dim", c_.head_dim);
    positive("intermediate", c_.intermediate);
    positive("max_positions", c_.max_positions);
    positive("vocabulary", c_.vocabulary);
    positive("layers", c_.layers);
  }

  // The widest rows that operators see: queries, keys and values side by side; gate and up side by side.
  void widths() const {
    std::int64_t constexpr most = std::numeric_limits<int>::max();
    std::int64_t const qkv = std::int64_t{c_.heads} + 2 * std::int64_t{c_.kv_heads};  // no overflow: below 2^33
    require(qkv <= most / c_.head_dim, "heads", "(", c_.heads, " and 2 x ", c_.kv_heads, " kv_heads) of ", c_.head_dim,
            " values make rows too wide for an int, choose smaller ones");
    require(c_.intermediate <= most / 2, "intermediate", "is ", c_.intermediate,
            " (gate and up side by side are too wide for an int), choose a smaller one");
  }

  void heads() const {
    require(c_.heads % c_.kv_heads == 0, "kv_heads", "is ", c_.kv_heads, " (each must serve as many of the ", c_.heads,
            " heads as the others), choose a divisor of heads");
    if (c_.family == Family::llama) return;
    require(c_.kv_heads == c_.heads, "kv_heads", "is ", c_.kv_heads, " but heads is ", c_.heads, " (", name(c_.family),
            " has one key head per query head), make them equal");
    require(c_.hidden == c_.heads * c_.head_dim, "hidden", "is ", c_.hidden, " but heads x head_dim is ", c_.heads,
            " x ", c_.head_dim, " (", name(c_.family), " splits hidden into heads), make them equal");
  }

  void constants() const {
    require(std::isfinite(c_.norm_epsilon) && c_.norm_epsilon > 0, "norm_epsilon", "is ", c_.norm_epsilon,
            " (it keeps constant rows from dividing by zero), choose a small positive number such as 1e-5");
  }

  void learned_positions() const {
    require(c_.rope_theta == 0, "rope_theta", "is ", c_.rope_theta, " (", name(c_.family),
            " does not rotate positions), leave it 0");
    require(std::holds_alternative<std::monostate>(c_.rope_scaling), "rope_scaling", "is given (", name(c_.family),
            " does not rotate positions), leave it out");
  }

  LayerConfig const& c_;
  std::string_view where_;
};

// ---------------------------------------------------------------- config.json

std::string brief(json const& value) {
  std::string const whole = value.dump(-1, ' ', true);
  return whole.size() <= 60 ? whole : text("a JSON ", value.type_name(), " of ", whole.size(), " characters");
}

// One JSON object of a config. Keys are lists, because families name the same thing differently; null counts as absent.
class Fields {
 public:
  using Keys = std::initializer_list<char const*>;

  Fields(json const& object, std::string where) : object_(object), where_(std::move(where)) {
    check(object_.is_object(), where_,
          [&] { return text("is ", brief(object_), " (an object belongs there), see a Hugging Face config.json"); });
  }

  std::string const& where() const { return where_; }

  bool has(Keys keys) const { return find(keys).second != nullptr; }

  // A count that must be there.
  int size(Keys keys) const {
    check(has(keys), where_, [&] { return text(*keys.begin(), " is missing, add it as a whole number"); });
    return size_or(keys, 0);
  }

  int size_or(Keys keys, int absent) const {
    auto const [key, value] = find(keys);
    if (value == nullptr) return absent;
    bool const fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= 1 &&
                      value->get<std::uint64_t>() <= std::numeric_limits<int>::max();
    check(fits, where_, [key = key, value = value] {
      return text(key, " is ", brief(*value), " (a size is a whole number from 1 to ", std::numeric_limits<int>::max(),
                  ", without quotes, point or exponent), correct it");
    });
    return value->get<int>();
  }

  double number(Keys keys) const {
    check(has(keys), where_, [&] { return text(*keys.begin(), " is missing, add it as a number"); });
    return number_or(keys, 0);
  }

  double number_or(Keys keys, double absent) const {
    auto const [key, value] = find(keys);
    if (value == nullptr) return absent;
    bool const fits = value->is_number() && value->get<double>() > 0;
    check(fits, where_, [key = key, value = value] {
      return text(key, " is ", brief(*value), " (a positive number belongs there, without quotes), correct it");
    });
    return value->get<double>();
  }

  std::optional<double> number_if_given(Keys keys) const {
    return has(keys) ? std::optional(number(keys)) : std::nullopt;
  }

  // A list that must be there.
  std::vector<double> numbers(char const* key) const {
    auto const value = find({key}).second;
    bool const fits = value != nullptr && value->is_array() &&
                      std::all_of(value->begin(), value->end(), [](json const& v) { return v.is_number(); });
    check(fits, where_, [&] {
      return text(key, " is ", value == nullptr ? "missing" : brief(*value), " (a list of numbers belongs there)",
                  ", correct it");
    });
    return value->get<std::vector<double>>();
  }

  bool flag_or(char const* key, bool absent) const {
    auto const value = find({key}).second;
    if (value == nullptr) return absent;
    check(value->is_boolean(), where_,
          [&] { return text(key, " is ", brief(*value), " (true or false belongs there), correct it"); });
    return value->get<bool>();
  }

  // What kfuse computes in one way only: any other value would be accepted and not honoured.
  void only(Keys keys, json const& honoured, std::string_view why) const {
    auto const [key, value] = find(keys);
    if (value == nullptr || *value == honoured) return;
    throw Error(
        text(where_, ": ", key, " is ", brief(*value), " (", why, "), only ", brief(honoured), " is supported"));
  }

  void no_other_keys_than(std::vector<std::string_view> const& keys, std::string_view why) const {
    for (auto const& [key, value] : object_.items()) {
      bool const known = std::find(keys.begin(), keys.end(), key) != keys.end();
      check(known, where_, [&, &stranger = key] {
        return text("has ", brief(stranger), " (", why, "), only ", listed(keys), " are supported");
      });
    }
  }

  Fields object(Keys keys) const {
    auto const [key, value] = find(keys);
    return Fields(*value, where_ + ": " + key);
  }

  std::string text_or(Keys keys, std::string const& absent) const {
    auto const [key, value] = find(keys);
    if (value == nullptr) return absent;
    check(value->is_string(), where_,
          [key = key, value = value] { return text(key, " is ", brief(*value), " (text belongs there), correct it"); });
    return value->get<std::string>();
  }

 private:
  // The first of the keys that is there; all that are there must agree.
  std::pair<char const*, json const*> find(Keys keys) const {
    std::pair<char const*, json const*> found{nullptr, nullptr};
    for (auto const* const key : keys) {
      auto const here = object_.find(key);
      if (here == object_.end() || here->is_null()) continue;
      if (found.second == nullptr) found = {key, &*here};
      check(*found.second == *here, where_, [&] {
        return text(found.first, " is ", brief(*found.second), " but ", key, " is ", brief(*here),
                    " (both mean the same), remove one");
      });
    }
    return found;
  }

  json const& object_;
  std::string where_;
};

Family read_family(Fields const& fields) {
  std::string const type = fields.text_or({"model_type"}, "");
  for (auto const family : {Family::llama, Family::gpt2, Family::bert}) {
    if (type == name(family)) return family;
  }
  throw Error(
      text(fields.where(), ": model_type is ", type.empty() ? "missing" : brief(type), ", choose llama, gpt2 or bert"));
}

// Hugging Face lets a Llama leave the head size out, when it follows from the rest.
int read_head_dim(Fields const& fields, LayerConfig const& config) {
  if (!fields.has({"head_dim"})) {
    check(config.hidden % config.heads == 0, fields.where(), [&] {
      return text("head_dim is missing and ", config.heads, " heads do not divide hidden_size ", config.hidden,
                  ", add head_dim");
    });
  }
  return fields.size_or({"head_dim"}, config.hidden / config.heads);
}

void read_sizes(Fields const& fields, LayerConfig& config) {
  config.hidden = fields.size({"hidden_size", "n_embd"});
  config.heads = fields.size({"num_attention_heads", "n_head"});
  config.kv_heads = fields.size_or({"num_key_value_heads"}, config.heads);
  config.head_dim = read_head_dim(fields, config);
  config.max_positions = fields.size({"max_position_embeddings", "n_positions"});
  config.vocabulary = fields.size({"vocab_size"});
  config.layers = fields.size({"num_hidden_layers", "n_layer"});
}

// GPT-2 files leave the inner size null where it is four times the hidden one.
int read_intermediate(Fields const& fields, LayerConfig const& config) {
  if (config.family != Family::gpt2 || fields.has({"intermediate_size", "n_inner"})) {
    return fields.size({"intermediate_size", "n_inner"});
  }
  check(config.hidden <= std::numeric_limits<int>::max() / 4, fields.where(), [&] {
    return text("n_embd is ", config.hidden, " (four times that, for n_inner, is too large for an int), add n_inner");
  });
  return 4 * config.hidden;
}

// A kind of rope: the keys that belong to it, and its scaling by their values. `original` is the number of positions
// that the model was trained on.
struct RopeKind {
  std::string_view type;
  std::vector<std::string_view> keys;
  RopeScaling (*read)(Fields const& rope, int original, int max_positions);
};

RopeScaling read_default(Fields const&, int, int) {
  return {};
}
RopeScaling read_linear(Fields const& rope, int, int) {
  return LinearScaling{rope.number({"factor"})};
}
RopeScaling read_dynamic(Fields const& rope, int original, int) {
  return DynamicScaling{rope.number({"factor"}), original};
}
RopeScaling read_llama3(Fields const& rope, int, int) {
  return Llama3Scaling{.factor = rope.number({"factor"}),
                       .low_frequency_factor = rope.number({"low_freq_factor"}),
                       .high_frequency_factor = rope.number({"high_freq_factor"}),
                       .original_max_positions = rope.size({"original_max_position_embeddings"})};
}
RopeScaling read_yarn(Fields const& rope, int original, int max_positions) {
  YarnScaling const absent;
  return YarnScaling{.factor = rope.number_or({"factor"}, double(max_positions) / original),
                     .original_max_positions = original,
                     .beta_fast = rope.number_or({"beta_fast"}, absent.beta_fast),
                     .beta_slow = rope.number_or({"beta_slow"}, absent.beta_slow),
                     .attention_factor = rope.number_if_given({"attention_factor"}),
                     .mscale = rope.number_or({"mscale"}, absent.mscale),
                     .mscale_all_dim = rope.number_or({"mscale_all_dim"}, absent.mscale_all_dim),
                     .truncate = rope.flag_or("truncate", absent.truncate)};
}
RopeScaling read_longrope(Fields const& rope, int original, int max_positions) {
  return LongRopeScaling{.short_factor = rope.numbers("short_factor"),
                         .long_factor = rope.numbers("long_factor"),
                         .factor = rope.number_or({"factor"}, double(max_positions) / original),
                         .original_max_positions = original,
                         .attention_factor = rope.number_if_given({"attention_factor"})};
}

RopeKind rope_kind(std::string const& type, std::string const& where) {
  std::string_view constexpr factor = "factor", original = "original_max_position_embeddings";
  RopeKind const kinds[] = {
      {"default", {}, read_default},
      {"linear", {factor}, read_linear},
      {"dynamic", {factor, original}, read_dynamic},
      {"llama3", {factor, original, "low_freq_factor", "high_freq_factor"}, read_llama3},
      {"yarn",
       {factor, original, "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"},
       read_yarn},
      {"longrope", {factor, original, "short_factor", "long_factor", "attention_factor"}, read_longrope}};
  std::vector<std::string_view> known;
  for (auto const& kind : kinds) {
    if (kind.type == type) return kind;
    known.push_back(kind.type);
  }
  throw Error(text(where, ": rope_type is ", brief(type), ", choose one of ", listed(known)));
}

// Newer files keep everything in rope_parameters; older ones have rope_theta beside rope_scaling.
void read_rope(Fields const& fields, LayerConfig& config) {
  double constexpr theta_of_first_llamas = 10000;  // their files do not state it
  fields.only({"partial_rotary_factor"}, 1.0, "the whole head is rotated");
  config.rope_theta = fields.number_or({"rope_theta"}, theta_of_first_llamas);
  if (!fields.has({"rope_parameters", "rope_scaling"})) return;

  Fields const rope = fields.object({"rope_parameters", "rope_scaling"});
  double const theta = rope.number_or({"rope_theta"}, config.rope_theta);
  check(!fields.has({"rope_theta"}) || theta == config.rope_theta, rope.where(), [&] {
    return text("rope_theta is ", theta, " but ", config.rope_theta, " outside (both mean the same), remove one");
  });
  config.rope_theta = theta;

  rope.only({"partial_rotary_factor"}, 1.0, "the whole head is rotated");
  RopeKind kind = rope_kind(rope.text_or({"rope_type", "type"}, "default"), rope.where());
  for (std::string_view const key : {"rope_theta", "rope_type", "type", "partial_rotary_factor"})
    kind.keys.push_back(key);
  rope.no_other_keys_than(kind.keys, "it might change the angles");
  Fields::Keys const original = {"original_max_position_embeddings"};  // Phi-3 has it beside rope_scaling
  config.rope_scaling =
      kind.read(rope, rope.size_or(original, fields.size_or(original, config.max_positions)), config.max_positions);
}

void read_llama(Fields const& fields, LayerConfig& config) {
  fields.only({"hidden_act"}, "silu", "a Llama layer is SwiGLU");
  fields.only({"attention_bias"}, false, "a Llama layer has no biases");
  fields.only({"mlp_bias"}, false, "a Llama layer has no biases");
  config.norm_epsilon = fields.number({"rms_norm_eps"});
  read_rope(fields, config);
}

void read_gpt2(Fields const& fields, LayerConfig& config) {
  fields.only({"activation_function", "hidden_act"}, "gelu_new", "a GPT-2 layer has GELU by tanh");
  fields.only({"scale_attn_weights"}, true, "scores are divided by sqrt(head size)");
  fields.only({"scale_attn_by_inverse_layer_idx"}, false, "scores do not depend on the layer's number");
  fields.only({"reorder_and_upcast_attn"}, false, "the element type is chosen by the caller");
  fields.only({"add_cross_attention"}, false, "a layer attends to its own sequence");
  config.norm_epsilon = fields.number({"layer_norm_epsilon", "layer_norm_eps"});
}

void read_bert(Fields const& fields, LayerConfig& config) {
  fields.only({"hidden_act"}, "gelu", "a BERT layer has GELU by erf");
  fields.only({"position_embedding_type"}, "absolute", "positions are added before the first layer");
  fields.only({"is_decoder"}, false, "a BERT layer sees the whole sentence");
  fields.only({"add_cross_attention"}, false, "a layer attends to its own sequence");
  config.norm_epsilon = fields.number({"layer_norm_eps", "layer_norm_epsilon"});
}

void refuse_foreign_keys(Fields const& fields, Family family) {
  for (auto const* const key : {"rope_theta", "rope_scaling", "rope_parameters"}) {
    check(family == Family::llama || !fields.has({key}), fields.where(),
          [&] { return text(key, " is given (", name(family), " does not rotate positions), remove it"); });
  }
  check(!fields.has({"quantization_config"}), fields.where(),
        "quantization_config is given (weights are read as they are stored), use the unquantised model");
}

std::string read_text(std::filesystem::path const& file, std::string const& where) {
  std::uintmax_t constexpr largest = 16 << 20;
  std::error_code error;
  auto const status = std::filesystem::status(file, error);
  check(std::filesystem::exists(status), where,
        [&] { return text("there is no such file, name a config.json or one of ", listed(preset_names())); });
  check(std::filesystem::is_regular_file(status), where, "is not a regular file, name a config.json");
  auto const bytes = std::filesystem::file_size(file, error);
  check(!error && bytes <= largest, where, "is larger than 16 MiB (no config.json is), name the right file");
  std::ifstream stream(file, std::ios::binary);
  std::string json_text(std::istreambuf_iterator<char>(stream), {});
  check(stream.good() || stream.eof(), where, "cannot be read, check the permissions");
  return json_text;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (auto const& [name, config] : presets) names.emplace_back(name);
  return names;
}

LayerConfig preset(std::string_view name) {
  auto const found = find_preset(name);
  check(found != presets.end(), "layer_config",
        [&] { return text("there is no preset \"", name, "\", choose one of ", listed(preset_names())); });
  return found->second;
}

LayerConfig parse_config(std::string_view json_text, std::string_view where) {
  impl::check_json(json_text, where);
  json const object = json::parse(json_text);
  Fields const fields(object, std::string(where));
  LayerConfig config{.family = read_family(fields)};
  refuse_foreign_keys(fields, config.family);
  read_sizes(fields, config);
  config.intermediate = read_intermediate(fields, config);
  switch (config.family) {
    case Family::llama:
      read_llama(fields, config);
      break;
    case Family::gpt2:
      read_gpt2(fields, config);
      break;
    case Family::bert:
      read_bert(fields, config);
      break;
  }
  Validator(config, where).all();
  return config;
}

LayerConfig read_config(std::filesystem::path const& path) {
  std::error_code error;
  auto const file = std::filesystem::is_directory(path, error) ? path / "config.json" : path;
  std::string const where = "layer_config: " + file.string();
  return parse_config(read_text(file, where), where);
}

LayerConfig config_from(std::string const& name_or_path) {
  auto const found = find_preset(name_or_path);
  return found != presets.end() ? found->second : read_config(name_or_path);
}

void validate(LayerConfig const& config) {
  Validator(config, "layer_config").all();
}

RopeSettings rope_settings(LayerConfig const& config) {
  Validator(config, "rope_settings").rope();
  return {config.rope_theta, config.head_dim, config.rope_scaling};
}

}  // namespace kfuse
