// SPDX-License-Identifier: Apache-2.0
// The sizes and constants of one transformer layer: named presets, Hugging Face config.json files, and validation.
#ifndef KFUSE_MODELS_LAYER_CONFIG_HPP
#define KFUSE_MODELS_LAYER_CONFIG_HPP

#include <kfuse/fused/rope_settings.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kfuse {

// What a layer of the family does, and in which order:
//   llama  RMSNorm before each half, grouped-query attention with rotary positions, SwiGLU, no biases
//   gpt2   LayerNorm before each half, biases, GELU by tanh, learned positions
//   bert   LayerNorm after each half, biases, GELU by erf, learned positions, no causal mask
enum class Family { llama, gpt2, bert };

constexpr char const* name(Family family) {
  switch (family) {
    case Family::llama:
      return "llama";
    case Family::gpt2:
      return "gpt2";
    case Family::bert:
      return "bert";
  }
  return "unknown";
}

struct LayerConfig {
  Family family = Family::llama;
  int hidden = 0;                 // values per token between layers
  int heads = 0;                  // query heads
  int kv_heads = 0;               // key and value heads; each serves heads / kv_heads query heads
  int head_dim = 0;               // values per head
  int intermediate = 0;           // values per token inside the feed-forward half
  double norm_epsilon = 0;        // added to the variance (LayerNorm) or the mean square (RMSNorm)
  double rope_theta = 0;          // base of the rotary wavelengths; 0 in families that do not rotate
  RopeScaling rope_scaling = {};  // llama only
  int max_positions = 0;          // tokens in the longest sequence
  int vocabulary = 0;             // rows of the embedding table
  int layers = 0;                 // layers of the whole model

  friend bool operator==(LayerConfig const&, LayerConfig const&) = default;
};

// The names that preset() knows.
std::vector<std::string> preset_names();

// The public configuration of a well-known model.
LayerConfig preset(std::string_view name);

// The text of a Hugging Face config.json. What a layer of the family cannot do as asked (another activation,
// biases in a Llama, another kind of rope, ...) is refused. `where` begins the messages; name the file in it.
LayerConfig parse_config(std::string_view json_text, std::string_view where);

// A Hugging Face config.json, or the folder it lies in.
LayerConfig read_config(std::filesystem::path const& path);

// A preset if there is one of that name, else the file.
LayerConfig config_from(std::string const& name_or_path);

// Throws kfuse::Error for sizes and constants that make no layer; the message names the field.
void validate(LayerConfig const& config);

// How the heads of a llama are rotated: fused/rope_frequencies.hpp makes angles of it. Throws kfuse::Error for other
// families.
RopeSettings rope_settings(LayerConfig const& config);

}  // namespace kfuse

#endif
