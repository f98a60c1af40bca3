// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of one table, or sums of rows of several (words, positions, token types), with dropout:
//   y(r, .) = dropout(scale table(indices(r), .) + second(second_indices(r), .) + third(third_indices(r), .))
//
// The chain gather | scale | add_gathered | dropout | store. An index outside its table stands for a row of
// zeros; options.status is raised (DataFault::index) where one is given. The sum is rounded once.
#ifndef KFUSE_FUSED_EMBEDDING_HPP
#define KFUSE_FUSED_EMBEDDING_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/gather.hpp>

namespace kfuse {

struct EmbeddingOptions {
  // Of the first table: sqrt(columns) in Vaswani et al. 2017, and in Gemma, which rounds that to the element type.
  double scale = 1;
  double dropout = 0;        // the probability to drop a value of the sum
  RandomSource random = {};  // which are dropped: of a RandomState, or of a View of one when the kernel runs
  DataStatus status = {};
};

namespace impl {

// Table `number` of up to three.
template <int number, class Space, TensorLike T, TensorLike I>
auto embed(EmbeddingOptions const& options, T const& table, I const& indices) {
  constexpr char const* names[][2] = {{"table", "indices"}, {"second", "second_indices"}, {"third", "third_indices"}};
  constexpr auto gathered = number == 0 ? Gathered::replaces : Gathered::adds;
  return gather_stage<gathered>(tensor_of<2, Space, ElementOf<T> const>(table, "kfuse::embedding", names[number][0]),
                                tensor_of<1, Space, ElementOf<I> const>(indices, "kfuse::embedding", names[number][1]),
                                options.status);
}

// What follows the first table: further ones, and y.
template <int number, class Space, TensorLike Y>
auto embedding_rest(EmbeddingOptions const& options, Y const& y) {
  return Dropout<>{options.dropout, options.random} |
         store(tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::embedding", "y"));
}
template <int number, class Space, TensorLike T, TensorLike I, TensorLike... More>
auto embedding_rest(EmbeddingOptions const& options, T const& table, I const& indices, More const&... more) {
  return embed<number, Space>(options, table, indices) | embedding_rest<number + 1, Space>(options, more...);
}

template <class Space, TensorLike T, TensorLike I, TensorLike... More>
auto embedding_chain(EmbeddingOptions const& options, T const& table, I const& indices, More const&... more) {
  return embed<0, Space>(options, table, indices) | scale(options.scale) | embedding_rest<1, Space>(options, more...);
}

template <class Space, TensorLike... T>
void embedding(Space const& space, EmbeddingOptions const& options, T const&... arguments) {
  fuse(space, "kfuse::embedding", embedding_chain<Space>(options, arguments...));
}

}  // namespace impl

// table: [entries, columns]; indices: int or std::int64_t, [rows]; y: [rows, columns].
template <class Space, TensorLike T, TensorLike I, TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, Y const& y, EmbeddingOptions const& options = {}) {
  impl::embedding(space, options, table, indices, y);
}
// Each table has entries of its own number, and each its indices.
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, T2 const& second, I2 const& second_indices,
               Y const& y, EmbeddingOptions const& options = {}) {
  impl::embedding(space, options, table, indices, second, second_indices, y);
}
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike T3, TensorLike I3,
          TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, T2 const& second, I2 const& second_indices,
               T3 const& third, I3 const& third_indices, Y const& y, EmbeddingOptions const& options = {}) {
  impl::embedding(space, options, table, indices, second, second_indices, third, third_indices, y);
}

// The same arguments as above, without options, which change nothing of it.
template <class Space, TensorLike... T>
Traffic embedding_traffic(Space const&, T const&... arguments) {
  return traffic(impl::embedding_chain<Space>({}, arguments...));
}

}  // namespace kfuse

#endif
