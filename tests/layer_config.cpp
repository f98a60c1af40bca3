// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/check.hpp>
#include <kfuse/fused/rope_frequencies.hpp>
#include <kfuse/models/layer_config.hpp>
#include <kfuse/models/safetensors.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "temporary_folder.hpp"

namespace {

using kfuse::test::TemporaryFolder;

namespace fs = std::filesystem;
using kfuse::Family;
using kfuse::LayerConfig;

// A JSON object by key, so that a test can change or remove one entry; values are JSON text.
using Json = std::map<std::string, std::string>;

std::string text_of(Json const& object) {
  std::string text = "{";
  for (auto const& [key, value] : object) text += (text.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
  return text + "}";
}

Json with(Json object, std::string const& key, std::string const& value) {
  object[key] = value;
  return object;
}

Json without(Json object, std::string const& key) {
  object.erase(key);
  return object;
}

// Public configurations, with some of the keys that do not matter here.
Json llama_3_8b() {
  return {{"architectures", "[\"LlamaForCausalLM\"]"},
          {"attention_bias", "false"},
          {"hidden_act", "\"silu\""},
          {"hidden_size", "4096"},
          {"intermediate_size", "14336"},
          {"max_position_embeddings", "8192"},
          {"model_type", "\"llama\""},
          {"num_attention_heads", "32"},
          {"num_hidden_layers", "32"},
          {"num_key_value_heads", "8"},
          {"pretraining_tp", "1"},
          {"rms_norm_eps", "1e-05"},
          {"rope_scaling", "null"},
          {"rope_theta", "500000.0"},
          {"torch_dtype", "\"bfloat16\""},
          {"vocab_size", "128256"}};
}

std::string llama3_scaling() {
  return R"({"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
             "original_max_position_embeddings": 8192, "rope_type": "llama3"})";
}

Json llama_3_2_1b() {
  Json config = llama_3_8b();
  config["head_dim"] = "64";
  config["hidden_size"] = "2048";
  config["intermediate_size"] = "8192";
  config["max_position_embeddings"] = "131072";
  config["mlp_bias"] = "false";
  config["num_hidden_layers"] = "16";
  config["rope_scaling"] = llama3_scaling();
  return config;
}

Json gpt2() {
  return {{"activation_function", "\"gelu_new\""},
          {"layer_norm_epsilon", "1e-05"},
          {"model_type", "\"gpt2\""},
          {"n_ctx", "1024"},
          {"n_embd", "768"},
          {"n_head", "12"},
          {"n_layer", "12"},
          {"n_positions", "1024"},
          {"task_specific_params", R"({"text-generation": {"do_sample": true, "max_length": 50}})"},
          {"vocab_size", "50257"}};
}

Json bert_base() {
  return {{"hidden_act", "\"gelu\""},  {"hidden_dropout_prob", "0.1"},
          {"hidden_size", "768"},      {"intermediate_size", "3072"},
          {"layer_norm_eps", "1e-12"}, {"max_position_embeddings", "512"},
          {"model_type", "\"bert\""},  {"num_attention_heads", "12"},
          {"num_hidden_layers", "12"}, {"position_embedding_type", "\"absolute\""},
          {"type_vocab_size", "2"},    {"vocab_size", "30522"}};
}

Json minilm() {
  Json config = bert_base();
  config["hidden_size"] = "384";
  config["intermediate_size"] = "1536";
  config["num_hidden_layers"] = "6";
  return config;
}

LayerConfig parse(Json const& object) {
  return kfuse::parse_config(text_of(object), "test.json");
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

void refused(std::string const& message, std::string const& part) {
  CAPTURE(message);
  CHECK(message.find(part) != message.npos);
}

// The object is refused by the name of the file, and with this in the message.
void refused(Json const& object, std::string const& part) {
  std::string const message = refusal([&] { parse(object); });
  CHECK(message.starts_with("test.json"));
  refused(message, part);
}

fs::path test_data(std::string const& name) {
  char const* const folder = std::getenv("KFUSE_TEST_DATA");
  REQUIRE_MESSAGE(folder != nullptr, "set KFUSE_TEST_DATA to the folder tests/data");
  return fs::path(folder) / name;
}

LayerConfig reference_config(std::string const& name) {
  kfuse::Safetensors const file(test_data(name));
  return kfuse::parse_config(file.metadata().at("config"), name);
}

}  // namespace

TEST_SUITE_BEGIN("layer_config");

TEST_CASE("presets equal the public configurations") {
  CHECK(kfuse::preset("llama-3-8b") == parse(llama_3_8b()));
  CHECK(kfuse::preset("llama-3.2-1b") == parse(llama_3_2_1b()));
  CHECK(kfuse::preset("gpt2") == parse(gpt2()));
  CHECK(kfuse::preset("bert-base") == parse(bert_base()));
  CHECK(kfuse::preset("minilm") == parse(minilm()));

  LayerConfig const llama = kfuse::preset("llama-3-8b");
  CHECK(llama.head_dim == 128);
  CHECK(llama.kv_heads == 8);
  CHECK(llama.rope_scaling == kfuse::RopeScaling());
  CHECK(kfuse::preset("llama-3.2-1b").rope_scaling == kfuse::RopeScaling(kfuse::Llama3Scaling{32, 1, 4, 8192}));
  CHECK(kfuse::preset("minilm").head_dim == 32);
  CHECK(kfuse::preset("gpt2").intermediate == 3072);
}

TEST_CASE("every preset is valid and has a name") {
  CHECK(kfuse::preset_names() == std::vector<std::string>{"llama-3-8b", "llama-3.2-1b", "gpt2", "bert-base", "minilm"});
  for (auto const& name : kfuse::preset_names()) {
    CAPTURE(name);
    CHECK_NOTHROW(kfuse::validate(kfuse::preset(name)));
    CHECK(kfuse::config_from(name) == kfuse::preset(name));
  }
}

TEST_CASE("an unknown preset is refused with the known ones") {
  for (std::string const name : {"llama-4", "", "GPT2", "gpt2 ", "\xFF\xFE"}) {
    std::string const message = refusal([&] { kfuse::preset(name); });
    for (auto const& known : kfuse::preset_names()) refused(message, known);
    refused(refusal([&] { kfuse::config_from(name); }), "llama-3.2-1b");
  }
}

TEST_CASE("a file, or the folder it lies in, is read") {
  TemporaryFolder const folder;
  auto const file = folder.write("config.json", text_of(minilm()));
  CHECK(kfuse::read_config(file) == kfuse::preset("minilm"));
  CHECK(kfuse::read_config(folder.path()) == kfuse::preset("minilm"));
  CHECK(kfuse::config_from(file.string()) == kfuse::preset("minilm"));
  CHECK(kfuse::config_from(folder.path().string()) == kfuse::preset("minilm"));
}

TEST_CASE("a file that cannot be read is refused by its name") {
  TemporaryFolder const folder;
  auto const read = [](fs::path const& path) { return refusal([&] { kfuse::read_config(path); }); };
  refused(read(folder.path()), "config.json: there is no such file");
  refused(read(folder.path() / "absent.json"), "absent.json: there is no such file");
  refused(read("/dev/null"), "/dev/null: is not a regular file");
  refused(read(folder.write("empty.json", "")), "empty.json: the JSON text is not valid");
  refused(read(folder.write("large.json", std::string((16 << 20) + 1, ' '))), "larger than 16 MiB");
}

TEST_CASE("the configurations of the reference models are read") {
  LayerConfig const llama = reference_config("llama_tiny.safetensors");
  CHECK(llama == LayerConfig{.family = Family::llama,
                             .hidden = 96,
                             .heads = 6,
                             .kv_heads = 2,
                             .head_dim = 16,
                             .intermediate = 200,
                             .norm_epsilon = 1e-5,
                             .rope_theta = 500000,
                             .rope_scaling = kfuse::Llama3Scaling{32, 1, 4, 8192},
                             .max_positions = 131072,
                             .vocabulary = 64,
                             .layers = 2});
  LayerConfig const gpt = reference_config("gpt2_tiny.safetensors");
  CHECK(gpt == LayerConfig{.family = Family::gpt2,
                           .hidden = 96,
                           .heads = 6,
                           .kv_heads = 6,
                           .head_dim = 16,
                           .intermediate = 384,
                           .norm_epsilon = 1e-5,
                           .max_positions = 64,
                           .vocabulary = 64,
                           .layers = 2});
}

TEST_CASE("what a file leaves out follows from the rest") {
  CHECK(parse(without(llama_3_8b(), "num_key_value_heads")).kv_heads == 32);
  CHECK(parse(with(llama_3_8b(), "num_key_value_heads", "null")).kv_heads == 32);
  CHECK(parse(with(llama_3_8b(), "head_dim", "null")).head_dim == 128);
  CHECK(parse(with(llama_3_8b(), "head_dim", "96")).head_dim == 96);  // need not be hidden / heads
  CHECK(parse(without(llama_3_8b(), "rope_theta")).rope_theta == 10000);
  CHECK(parse(with(llama_3_8b(), "rope_theta", "500000")).rope_theta == 500000);
  CHECK(parse(with(gpt2(), "n_inner", "null")).intermediate == 3072);
  CHECK(parse(with(gpt2(), "n_inner", "1000")).intermediate == 1000);
  CHECK(parse(without(gpt2(), "activation_function")).family == Family::gpt2);
}

TEST_CASE("rope is read in the older and the newer spelling") {
  Json const bare = without(without(llama_3_2_1b(), "rope_scaling"), "rope_theta");
  std::string const newer =
      R"({"rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
  CHECK(parse(with(bare, "rope_parameters", newer)) == kfuse::preset("llama-3.2-1b"));
  CHECK(parse(with(with(bare, "rope_parameters", newer), "rope_theta", "500000")).rope_theta == 500000);
  refused(with(with(bare, "rope_parameters", newer), "rope_theta", "10000.0"), "rope_theta is 500000 but 10000");

  LayerConfig const plain = parse(with(bare, "rope_parameters", R"({"rope_theta": 1e6, "rope_type": "default"})"));
  CHECK(plain.rope_theta == 1e6);
  CHECK(plain.rope_scaling == kfuse::RopeScaling());
  CHECK(parse(with(bare, "rope_parameters", R"({"rope_theta": 1e6})")).rope_theta == 1e6);
}

TEST_CASE("each kind of scaling is read, and what it leaves out follows from the rest") {
  Json const longer = with(llama_3_8b(), "max_position_embeddings", "32768");
  auto const scaling = [&](std::string const& text) { return parse(with(longer, "rope_scaling", text)).rope_scaling; };
  auto const is = [](kfuse::RopeScaling const& read, kfuse::RopeScaling const& expected) { CHECK(read == expected); };
  is(scaling(R"({"type": "linear", "factor": 2.5})"), kfuse::LinearScaling{2.5});
  is(scaling(R"({"rope_type": "dynamic", "factor": 2})"), kfuse::DynamicScaling{2, 32768});
  is(scaling(R"({"rope_type": "dynamic", "factor": 2, "original_max_position_embeddings": 4096})"),
     kfuse::DynamicScaling{2, 4096});
  is(scaling(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192})"),
     kfuse::YarnScaling{.factor = 4, .original_max_positions = 8192});
  is(scaling(R"({"rope_type": "yarn", "original_max_position_embeddings": 4096, "attention_factor": 1.5})"),
     kfuse::YarnScaling{.factor = 8, .original_max_positions = 4096, .attention_factor = 1.5});
  is(scaling(R"({"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 16,
                 "beta_slow": 2, "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": false})"),
     kfuse::YarnScaling{.factor = 40,
                        .original_max_positions = 4096,
                        .beta_fast = 16,
                        .beta_slow = 2,
                        .mscale = 0.707,
                        .mscale_all_dim = 1,
                        .truncate = false});

  Json small = with(with(longer, "head_dim", "4"), "original_max_position_embeddings", "4096");
  small["rope_scaling"] = R"({"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2, 8]})";
  kfuse::LongRopeScaling const expected{
      .short_factor = {1, 1.5}, .long_factor = {2, 8}, .factor = 8, .original_max_positions = 4096};
  is(parse(small).rope_scaling, expected);
  small["rope_scaling"] = R"({"type": "longrope", "short_factor": [1.0], "long_factor": [2, 8]})";
  refused(small, "the length of rope_scaling.short_factor is 1");
  small["rope_scaling"] = R"({"type": "longrope", "short_factor": 1, "long_factor": [2, 8]})";
  refused(small, "short_factor is 1");
  small["rope_scaling"] = R"({"type": "longrope", "short_factor": [1, "2"], "long_factor": [2, 8]})";
  refused(small, "short_factor is [1,\"2\"]");
  small["rope_scaling"] = R"({"type": "longrope", "short_factor": [1, 2]})";
  refused(small, "long_factor is missing");
}

TEST_CASE("another kind of rope is refused, and so are keys of another kind") {
  for (std::string const kind : {"mrope", "ntk", "LLAMA3", ""}) {
    std::string const scaling = "{\"rope_type\": \"" + kind + "\", \"factor\": 2.0}";
    refused(with(llama_3_8b(), "rope_scaling", scaling), "rope_scaling: rope_type is \"" + kind + "\"");
    std::string const old = "{\"type\": \"" + kind + "\", \"factor\": 2.0}";
    refused(with(llama_3_8b(), "rope_scaling", old), "\"" + kind + "\"");
  }
  refused(with(llama_3_8b(), "rope_scaling", R"({"type": "linear", "factor": 2.0, "beta_fast": 32})"), "\"beta_fast\"");
  refused(with(llama_3_8b(), "rope_scaling", R"({"type": "linear"})"), "factor is missing");
  refused(with(llama_3_8b(), "rope_scaling", R"({"type": "linear", "factor": 0.5})"), "rope_scaling.factor is 0.5");
  refused(with(llama_3_8b(), "rope_scaling", R"({"type": "yarn", "factor": 2, "truncate": 1})"), "truncate is 1");
  refused(with(llama_3_8b(), "rope_scaling", R"({"factor": 2.0})"), "\"factor\"");
  refused(with(llama_3_8b(), "rope_scaling", R"({"rope_type": "default", "mscale": 1})"), "\"mscale\"");
  refused(with(llama_3_8b(), "rope_scaling", "2.0"), "rope_scaling: is 2.0");
  refused(with(llama_3_8b(), "rope_scaling", R"({"rope_type": 3})"), "rope_type is 3");
  refused(with(llama_3_8b(), "rope_scaling", R"({"rope_type": "llama3", "type": "yarn"})"), "both mean the same");
  refused(with(llama_3_8b(), "partial_rotary_factor", "0.5"), "partial_rotary_factor is 0.5");
  refused(with(llama_3_8b(), "rope_scaling", R"({"rope_type": "llama3", "factor": 8.0})"),
          "low_freq_factor is missing");
  Json strange = with(llama_3_2_1b(), "rope_parameters", R"({"rope_type": "default"})");
  refused(strange, "rope_parameters is");
  refused(with(bert_base(), "rope_theta", "10000.0"), "rope_theta is given (bert");
  refused(with(gpt2(), "rope_scaling", llama3_scaling()), "rope_scaling is given (gpt2");
}

TEST_CASE("an option that kfuse does not honour is refused") {
  refused(with(llama_3_8b(), "hidden_act", "\"gelu\""), "hidden_act is \"gelu\"");
  refused(with(llama_3_8b(), "attention_bias", "true"), "attention_bias is true");
  refused(with(llama_3_8b(), "mlp_bias", "true"), "mlp_bias is true");
  refused(with(llama_3_8b(), "quantization_config", R"({"bits": 4})"), "quantization_config");
  for (std::string const variant : {"gelu", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu"}) {
    refused(with(gpt2(), "activation_function", "\"" + variant + "\""), "activation_function is \"" + variant);
  }
  for (std::string const variant : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu"}) {
    refused(with(bert_base(), "hidden_act", "\"" + variant + "\""), "hidden_act is \"" + variant);
  }
  refused(with(gpt2(), "scale_attn_weights", "false"), "scale_attn_weights is false");
  refused(with(gpt2(), "scale_attn_by_inverse_layer_idx", "true"), "scale_attn_by_inverse_layer_idx");
  refused(with(gpt2(), "reorder_and_upcast_attn", "true"), "reorder_and_upcast_attn");
  refused(with(gpt2(), "add_cross_attention", "true"), "add_cross_attention");
  refused(with(bert_base(), "position_embedding_type", "\"relative_key\""), "position_embedding_type");
  refused(with(bert_base(), "is_decoder", "true"), "is_decoder");
  refused(with(bert_base(), "model_type", "\"roberta\""), "model_type is \"roberta\"");
  refused(without(bert_base(), "model_type"), "model_type is missing");
  refused(with(bert_base(), "model_type", "1"), "model_type is 1");
}

TEST_CASE("a size that is missing is refused by its name") {
  for (auto const& [key, rest] : Json{{"hidden_size", ""},
                                      {"num_attention_heads", ""},
                                      {"intermediate_size", ""},
                                      {"max_position_embeddings", ""},
                                      {"vocab_size", ""},
                                      {"num_hidden_layers", ""},
                                      {"rms_norm_eps", ""}}) {
    refused(without(llama_3_8b(), key), key + " is missing");
    refused(with(llama_3_8b(), key, "null"), key + " is missing");
  }
}

TEST_CASE("a size that is no positive whole number is refused by its name") {
  auto const check_key = [](Json const& object, std::string const& key) {
    for (std::string const value : {"-1", "0", "99999999999", "99999999999999999999999", "2147483648", "1e3", "12.0",
                                    "12.5", "\"12\"", "\"\"", "true", "[12]", "{}"}) {
      CAPTURE(value);
      refused(with(object, key, value), key + " is ");
    }
    for (std::string const broken : {"12x", "", "0x10", "012", "+3", "NaN", "1e", "--1"}) {
      CAPTURE(broken);
      refused(with(object, key, broken), "after the key \"" + key + "\"");
    }
  };
  for (auto const* const key : {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                "intermediate_size", "max_position_embeddings", "vocab_size", "num_hidden_layers"}) {
    check_key(llama_3_8b(), key);
  }
  for (auto const* const key : {"n_embd", "n_head", "n_layer", "n_positions", "n_inner"}) check_key(gpt2(), key);
}

TEST_CASE("a constant that is no positive number is refused by its name") {
  for (std::string const value : {"-1e-5", "0", "0.0", "\"1e-5\"", "true", "[]"}) {
    CAPTURE(value);
    refused(with(llama_3_8b(), "rms_norm_eps", value), "rms_norm_eps is ");
    refused(with(llama_3_8b(), "rope_theta", value), "rope_theta is ");
    refused(with(gpt2(), "layer_norm_epsilon", value), "layer_norm_epsilon is ");
    refused(with(bert_base(), "layer_norm_eps", value), "layer_norm_eps is ");
  }
  refused(with(llama_3_8b(), "rope_theta", "1e999"), "after the key \"rope_theta\"");
}

TEST_CASE("one meaning given twice must agree") {
  CHECK(parse(with(gpt2(), "hidden_size", "768")) == kfuse::preset("gpt2"));
  refused(with(gpt2(), "hidden_size", "1024"), "hidden_size is 1024 but n_embd is 768");
  std::string const twice = R"({"model_type": "bert", "hidden_size": 768, "hidden_size": 1024})";
  refused(refusal([&] { kfuse::parse_config(twice, "test.json"); }), "\"hidden_size\" stands twice");
}

TEST_CASE("text that is no JSON object is refused") {
  for (std::string const text : {"", " ", "nul", "{", "[1, 2", "{\"a\": 1,}", "{'a': 1}", "{} {}", "\xFF"}) {
    CAPTURE(text);
    refused(refusal([&] { kfuse::parse_config(text, "test.json"); }), "test.json: the JSON text is not valid");
  }
  for (std::string const text : {"null", "1", "\"gpt2\"", "[]"}) {
    CAPTURE(text);
    refused(refusal([&] { kfuse::parse_config(text, "test.json"); }), "an object belongs there");
  }
}

TEST_CASE("sizes that make no layer are refused by field") {
  auto const change = [](std::string const& name, std::function<void(LayerConfig&)> const& edit) {
    LayerConfig config = kfuse::preset(name);
    edit(config);
    return refusal([&] { kfuse::validate(config); });
  };
  std::pair<std::string, int LayerConfig::*> const sizes[] = {{"hidden", &LayerConfig::hidden},
                                                              {"heads", &LayerConfig::heads},
                                                              {"kv_heads", &LayerConfig::kv_heads},
                                                              {"head_dim", &LayerConfig::head_dim},
                                                              {"intermediate", &LayerConfig::intermediate},
                                                              {"max_positions", &LayerConfig::max_positions},
                                                              {"vocabulary", &LayerConfig::vocabulary},
                                                              {"layers", &LayerConfig::layers}};
  for (auto const& [field, member] : sizes) {
    for (int const bad : {0, -1, std::numeric_limits<int>::min()}) {
      for (auto const& name : kfuse::preset_names()) {
        auto const message = change(name, [&, which = member](LayerConfig& c) { c.*which = bad; });
        refused(message, field + " is " + std::to_string(bad));
      }
    }
  }
  refused(change("llama-3-8b", [](auto& c) { c.kv_heads = 5; }), "kv_heads is 5");
  refused(change("llama-3-8b", [](auto& c) { c.kv_heads = 64; }), "kv_heads is 64");
  refused(change("llama-3-8b", [](auto& c) { c.head_dim = 127; }), "head_dim is 127");
  refused(change("gpt2", [](auto& c) { c.kv_heads = 4; }), "kv_heads is 4 but heads is 12");
  refused(change("bert-base", [](auto& c) { c.hidden = 767; }), "hidden is 767");
  CHECK(change("llama-3-8b", [](auto& c) { c.hidden = 4097; }).empty());
  int const most = std::numeric_limits<int>::max();
  refused(change("llama-3-8b", [&](auto& c) { c.heads = c.kv_heads = most; }), "heads (");
  refused(change("llama-3-8b", [&](auto& c) { c.head_dim = most - 1; }), "heads (");
  refused(change("llama-3-8b", [&](auto& c) { c.intermediate = most; }), "intermediate is");
  refused(change("gpt2", [](auto& c) { c.family = static_cast<Family>(7); }), "family is");
}

TEST_CASE("constants that make no layer are refused by field") {
  double constexpr nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  auto const scaling_of = [](double factor, double low, double high, int positions) {
    LayerConfig config = kfuse::preset("llama-3.2-1b");
    config.rope_scaling = kfuse::Llama3Scaling{factor, low, high, positions};
    return refusal([&] { kfuse::validate(config); });
  };
  for (double const bad : {nan, inf, 0.0, -1.0}) {
    LayerConfig config = kfuse::preset("llama-3-8b");
    config.norm_epsilon = bad;
    refused(refusal([&] { kfuse::validate(config); }), "norm_epsilon is");
    config = kfuse::preset("llama-3-8b");
    config.rope_theta = bad;
    refused(refusal([&] { kfuse::validate(config); }), "rope_theta is");
    refused(scaling_of(bad, 1, 4, 8192), "rope_scaling.factor is");
    refused(scaling_of(8, bad, 4, 8192), "rope_scaling.low_frequency_factor is");
    refused(scaling_of(8, 1, bad, 8192), "rope_scaling.high_frequency_factor is");
  }
  refused(scaling_of(8, 4, 1, 8192), "rope_scaling.high_frequency_factor is 1");
  refused(scaling_of(8, 4, 4, 8192), "rope_scaling.high_frequency_factor is 4");
  refused(scaling_of(8, 1, 4, 0), "rope_scaling.original_max_positions is 0");
  LayerConfig config = kfuse::preset("gpt2");
  config.rope_theta = 10000;
  refused(refusal([&] { kfuse::validate(config); }), "rope_theta is 10000 (gpt2");
  config.rope_theta = 0;
  config.rope_scaling = kfuse::LinearScaling{};
  refused(refusal([&] { kfuse::validate(config); }), "rope_scaling is given");
}

TEST_CASE("rope frequencies agree with the reference model's to the last bits of double") {
  kfuse::Safetensors const file(test_data("llama_tiny.safetensors"));
  auto const expected = kfuse::to_double(file.tensor("rope.inverse_frequencies"));
  auto const settings = kfuse::rope_settings(reference_config("llama_tiny.safetensors"));
  auto const frequencies = kfuse::rope_frequencies(settings, 131072).inverse;
  REQUIRE(frequencies.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(frequencies[i] / expected[i] - 1) < 1e-14);
}

TEST_CASE("rope settings are those of the config, and those of a family that does not rotate are refused") {
  LayerConfig config = kfuse::preset("llama-3.2-1b");
  auto const settings = kfuse::rope_settings(config);
  CHECK(settings.theta == 500000);
  CHECK(settings.rotary_dim == 64);
  CHECK(settings.scaling == config.rope_scaling);
  refused(refusal([] { kfuse::rope_settings(kfuse::preset("gpt2")); }), "family is gpt2");
  config.head_dim = 65;
  refused(refusal([&] { kfuse::rope_settings(config); }), "head_dim is 65");
}

TEST_SUITE_END();
