// SPDX-License-Identifier: Apache-2.0
// The weights of one layer, in the memory of Space.
#ifndef KFUSE_MODELS_LAYER_WEIGHTS_HPP
#define KFUSE_MODELS_LAYER_WEIGHTS_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/uniform.hpp>
#include <kfuse/models/layer_config.hpp>
#include <kfuse/models/safetensors.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kfuse {

template <class Space, class Element>
using Matrix = Kokkos::View<Element**, Kokkos::LayoutRight, typename Space::memory_space>;
template <class Space, class Element>
using Vector = Kokkos::View<Element*, Kokkos::LayoutRight, typename Space::memory_space>;

// Matrices are [out, in]. Projections that share their input lie under one another, so that one product makes them all,
// and each is a range of rows. What a family does not have is empty.
template <class Space, class Element>
struct LayerWeights {
  Matrix<Space, Element> qkv;                // [(heads + 2 kv_heads) * head_dim, hidden]: Q, K, V
  Vector<Space, Element> qkv_bias;           // not llama
  Matrix<Space, Element> out;                // [hidden, heads * head_dim]
  Vector<Space, Element> out_bias;           // not llama
  Matrix<Space, Element> up;                 // [intermediate, hidden]; llama: [2 * intermediate, hidden], gate first
  Vector<Space, Element> up_bias;            // not llama
  Matrix<Space, Element> down;               // [hidden, intermediate]
  Vector<Space, Element> down_bias;          // not llama
  Vector<Space, Element> norm1, norm1_bias;  // [hidden]: the attention half's; no bias in llama
  Vector<Space, Element> norm2, norm2_bias;  // [hidden]: the feed-forward half's

  // Calls f(name, view, rows, columns) for each tensor that `config` asks for, whether it is allocated or not.
  template <class Self, class F>
  static void for_each(Self& self, LayerConfig const& config, F const& f) {
    int const q = config.heads * config.head_dim, qkv = q + 2 * config.kv_heads * config.head_dim;
    int const up = config.intermediate * (config.family == Family::llama ? 2 : 1);
    f("qkv", self.qkv, qkv, config.hidden);
    f("out", self.out, config.hidden, q);
    f("up", self.up, up, config.hidden);
    f("down", self.down, config.hidden, config.intermediate);
    f("norm1", self.norm1, 1, config.hidden);
    f("norm2", self.norm2, 1, config.hidden);
    if (config.family == Family::llama) return;
    f("qkv_bias", self.qkv_bias, 1, qkv);
    f("out_bias", self.out_bias, 1, config.hidden);
    f("up_bias", self.up_bias, 1, up);
    f("down_bias", self.down_bias, 1, config.hidden);
    f("norm1_bias", self.norm1_bias, 1, config.hidden);
    f("norm2_bias", self.norm2_bias, 1, config.hidden);
  }
};

// Bytes that the weights of one layer take.
template <class Element>
std::size_t layer_weight_bytes(LayerConfig const& config) {
  std::size_t bytes = 0;
  using Weights = LayerWeights<Kokkos::DefaultHostExecutionSpace, Element>;
  Weights none;
  Weights::for_each(none, config, [&](char const*, auto&, int rows, int columns) {
    bytes += std::size_t(rows) * std::size_t(columns) * sizeof(Element);
  });
  return bytes;
}

namespace impl {

template <class Space, class Element>
Matrix<Space, Element> new_matrix(std::string const& name, int rows, int columns) {
  return Matrix<Space, Element>(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::weights::" + name), rows,
                                columns);
}
// One row of a matrix of one row.
template <class View>
auto only_row(View const& matrix) {
  return Kokkos::subview(matrix, 0, Kokkos::ALL);
}

// Numbers as they lie in a file, [rows, columns], rounded to Element, in memory of Space.
template <class Space, class Element>
Matrix<Space, Element> upload(std::string const& name, std::vector<double> const& values, int rows, int columns) {
  auto const matrix = new_matrix<Space, Element>(name, rows, columns);
  auto const host = Kokkos::create_mirror_view(matrix);
  for (std::size_t i = 0; i < values.size(); ++i) host.data()[i] = from_real<Element>(values[i]);
  Kokkos::deep_copy(matrix, host);
  return matrix;
}

// Part of a weight as checkpoints have it: which tensor, and whether it lies transposed ([in, out]).
struct StoredWeight {
  std::string name;
  bool transposed = false;
};
// What the tensors of LayerWeights are made of in a checkpoint of the family, under one another.
std::vector<StoredWeight> stored_weights(Family family, int index, std::string const& tensor);
// Reads those and lays them under one another: [rows, columns].
std::vector<double> read_stacked(Safetensors const& file, std::vector<StoredWeight> const& parts, int rows,
                                 int columns);

}  // namespace impl

// Any matrix (or vector: one row) of the file.
template <class Space, class Element>
Matrix<Space, Element> load_matrix(Safetensors const& file, std::string const& name, int rows, int columns) {
  return impl::upload<Space, Element>(name, impl::read_stacked(file, {{name}}, rows, columns), rows, columns);
}

// Layer `index` of a Hugging Face checkpoint of config.family. Names may have the prefix such checkpoints give them
// ("model.", "transformer.", "bert."). Throws kfuse::Error for a tensor that is absent or of another shape.
template <class Space, class Element>
LayerWeights<Space, Element> load_weights(Safetensors const& file, LayerConfig const& config, int index) {
  LayerWeights<Space, Element> weights;
  weights.for_each(weights, config, [&]<class View>(char const* name, View& view, int rows, int columns) {
    auto const parts = impl::stored_weights(config.family, index, name);
    auto const matrix =
        impl::upload<Space, Element>(name, impl::read_stacked(file, parts, rows, columns), rows, columns);
    if constexpr (View::rank() == 2)
      view = matrix;
    else
      view = impl::only_row(matrix);
  });
  return weights;
}

// Weights of the size a trained layer has: matrices uniform with the variance 1 / in, norms around 1, biases around 0.
// They depend on the seed alone, and are the same on every device.
template <class Space, class Element>
LayerWeights<Space, Element> random_weights(Space const& space, LayerConfig const& config, std::uint64_t seed) {
  LayerWeights<Space, Element> weights;
  std::uint64_t offset = 0;
  weights.for_each(weights, config, [&]<class View>(std::string const& name, View& view, int rows, int columns) {
    float const middle = name == "norm1" || name == "norm2" ? 1.0f : 0.0f;
    float const reach = rows > 1 ? std::sqrt(3.0f / float(columns)) : 0.1f;
    auto const matrix = impl::new_matrix<Space, Element>(name, rows, columns);
    fuse(space, "kfuse::random_weights",
         uniform(rows, columns, middle - reach, middle + reach, RandomState{seed, offset++}) | store(matrix));
    if constexpr (View::rank() == 2)
      view = matrix;
    else
      view = impl::only_row(matrix);
  });
  return weights;
}

// The same numbers in another element type.
template <class To, class Space, class Element>
LayerWeights<Space, To> convert_weights(Space const& space, LayerConfig const& config,
                                        LayerWeights<Space, Element> const& weights) {
  std::vector<Tensor<Element const, 2>> from;
  LayerWeights<Space, Element>::for_each(weights, config, [&](char const*, auto const& view, int rows, int columns) {
    from.push_back(make_tensor<Element const>(view.data(), rows, columns));
  });
  LayerWeights<Space, To> result;
  auto next = from.begin();
  result.for_each(result, config, [&]<class View>(char const* name, View& view, int rows, int columns) {
    auto const matrix = impl::new_matrix<Space, To>(name, rows, columns);
    fuse(space, "kfuse::convert_weights", load(*next++) | store(matrix));
    if constexpr (View::rank() == 2)
      view = matrix;
    else
      view = impl::only_row(matrix);
  });
  return result;
}

}  // namespace kfuse

#endif
