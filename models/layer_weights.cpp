// SPDX-License-Identifier: Apache-2.0
#include <kfuse/models/layer_weights.hpp>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>

namespace kfuse::impl {

namespace {

// Where a family's checkpoints keep the parts of a layer: the layer's prefix, and for each of our tensors the names
// below it. GPT-2's matrices are [in, out].
struct Names {
  std::string_view layer;
  std::map<std::string_view, std::vector<std::string_view>> parts;
  bool transposed;
};

Names const& names(Family family) {
  static Names const llama{"layers.",
                           {{"qkv", {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
                            {"out", {"self_attn.o_proj.weight"}},
                            {"up", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
                            {"down", {"mlp.down_proj.weight"}},
                            {"norm1", {"input_layernorm.weight"}},
                            {"norm2", {"post_attention_layernorm.weight"}}},
                           false};
  static Names const gpt2{"h.",
                          {{"qkv", {"attn.c_attn.weight"}},
                           {"qkv_bias", {"attn.c_attn.bias"}},
                           {"out", {"attn.c_proj.weight"}},
                           {"out_bias", {"attn.c_proj.bias"}},
                           {"up", {"mlp.c_fc.weight"}},
                           {"up_bias", {"mlp.c_fc.bias"}},
                           {"down", {"mlp.c_proj.weight"}},
                           {"down_bias", {"mlp.c_proj.bias"}},
                           {"norm1", {"ln_1.weight"}},
                           {"norm1_bias", {"ln_1.bias"}},
                           {"norm2", {"ln_2.weight"}},
                           {"norm2_bias", {"ln_2.bias"}}},
                          true};
  static Names const bert{
      "encoder.layer.",
      {{"qkv", {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"}},
       {"qkv_bias", {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
       {"out", {"attention.output.dense.weight"}},
       {"out_bias", {"attention.output.dense.bias"}},
       {"up", {"intermediate.dense.weight"}},
       {"up_bias", {"intermediate.dense.bias"}},
       {"down", {"output.dense.weight"}},
       {"down_bias", {"output.dense.bias"}},
       {"norm1", {"attention.output.LayerNorm.weight"}},
       {"norm1_bias", {"attention.output.LayerNorm.bias"}},
       {"norm2", {"output.LayerNorm.weight"}},
       {"norm2_bias", {"output.LayerNorm.bias"}}},
      false};
  return family == Family::llama ? llama : family == Family::gpt2 ? gpt2 : bert;
}

// The tensor under its plain name, or under the prefix that checkpoints of whole models give it.
StoredTensor const& find(Safetensors const& file, std::string const& name) {
  for (std::string_view prefix : {"", "model.", "transformer.", "bert."})
    if (std::string const full = std::string(prefix) + name; file.contains(full)) return file.tensor(full);
  return file.tensor(name);  // absent: says so
}

}  // namespace

std::vector<StoredWeight> stored_weights(Family family, int index, std::string const& tensor) {
  Names const& known = names(family);
  bool const is_matrix = tensor == "qkv" || tensor == "out" || tensor == "up" || tensor == "down";
  std::vector<StoredWeight> result;
  for (std::string_view part : known.parts.at(tensor))
    result.push_back(
        {std::string(known.layer) + std::to_string(index) + "." + std::string(part), known.transposed && is_matrix});
  return result;
}

std::vector<double> read_stacked(Safetensors const& file, std::vector<StoredWeight> const& parts, int rows,
                                 int columns) {
  std::vector<double> result;
  for (StoredWeight const& part : parts) {
    StoredTensor const& stored = find(file, part.name);
    std::vector<std::int64_t> shape = stored.shape;
    if (shape.size() == 1) shape.insert(shape.begin(), 1);
    bool const vector = rows == 1;
    auto const where = file.file().string() + ": " + part.name;
    check(shape.size() == 2, where, "expected a matrix or a vector; is this a checkpoint of another family?");
    // Vectors of several parts follow one another in one row.
    std::int64_t const out = vector || !part.transposed ? shape[0] : shape[1];
    std::int64_t const in = vector || !part.transposed ? shape[1] : shape[0];
    check(vector ? out == 1 && in <= columns : in == columns, where, [&] {
      return "has the shape [" + std::to_string(shape[0]) + ", " + std::to_string(shape[1]) +
             "], but the configuration asks for " + std::to_string(columns) +
             " inputs; do file and configuration belong together?";
    });
    std::vector<double> const values = to_double(stored);
    if (part.transposed) {
      for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i) result.push_back(values[std::size_t(i * out + o)]);
    } else {
      result.insert(result.end(), values.begin(), values.end());
    }
  }
  check(result.size() == std::size_t(rows) * std::size_t(columns), file.file().string() + ": " + parts.front().name,
        [&] {
          return "and what belongs to it have " + std::to_string(result.size()) +
                 " numbers, but the configuration asks for [" + std::to_string(rows) + ", " + std::to_string(columns) +
                 "]; do file and configuration belong together?";
        });
  return result;
}

}  // namespace kfuse::impl
