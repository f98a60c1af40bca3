// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of one table, or sums of rows of several (words, positions, token types):
//   y(r, .) = table(indices(r), .) + second(second_indices(r), .) + third(third_indices(r), .)
//
// The chain gather | add_gathered | store. An index outside its table stands for a row of zeros and reads nothing. The
// sum is rounded once.
#ifndef KFUSE_FUSED_EMBEDDING_HPP
#define KFUSE_FUSED_EMBEDDING_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/gather.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike Y>
auto store_embedding(Y const& y) {
  return store(tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::embedding: y"));
}
template <Gathered gathered, class Space, TensorLike T, TensorLike I>
auto embed(T const& table, I const& indices) {
  return gather_stage<gathered>(tensor_of<2, Space, ElementOf<T> const>(table, "kfuse::embedding: table"),
                                tensor_of<1, Space, int const>(indices, "kfuse::embedding: indices"));
}

template <class Space, TensorLike T, TensorLike I, TensorLike Y>
auto embedding_chain(T const& table, I const& indices, Y const& y) {
  return embed<Gathered::replaces, Space>(table, indices) | store_embedding<Space>(y);
}
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike Y>
auto embedding_chain(T const& table, I const& indices, T2 const& second, I2 const& second_indices, Y const& y) {
  return embed<Gathered::replaces, Space>(table, indices) | embed<Gathered::adds, Space>(second, second_indices) |
         store_embedding<Space>(y);
}
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike T3, TensorLike I3,
          TensorLike Y>
auto embedding_chain(T const& table, I const& indices, T2 const& second, I2 const& second_indices, T3 const& third,
                     I3 const& third_indices, Y const& y) {
  return embed<Gathered::replaces, Space>(table, indices) | embed<Gathered::adds, Space>(second, second_indices) |
         embed<Gathered::adds, Space>(third, third_indices) | store_embedding<Space>(y);
}

}  // namespace impl

// table: [entries, columns]; indices: int, [rows]; y: [rows, columns].
template <class Space, TensorLike T, TensorLike I, TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, Y const& y) {
  fuse(space, "kfuse::embedding", impl::embedding_chain<Space>(table, indices, y));
}
// Each table has entries of its own number, and each its indices.
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, T2 const& second, I2 const& second_indices,
               Y const& y) {
  fuse(space, "kfuse::embedding", impl::embedding_chain<Space>(table, indices, second, second_indices, y));
}
template <class Space, TensorLike T, TensorLike I, TensorLike T2, TensorLike I2, TensorLike T3, TensorLike I3,
          TensorLike Y>
void embedding(Space const& space, T const& table, I const& indices, T2 const& second, I2 const& second_indices,
               T3 const& third, I3 const& third_indices, Y const& y) {
  fuse(space, "kfuse::embedding",
       impl::embedding_chain<Space>(table, indices, second, second_indices, third, third_indices, y));
}

// The same arguments as above.
template <class Space, TensorLike... T>
Traffic embedding_traffic(Space const&, T const&... arguments) {
  return traffic(impl::embedding_chain<Space>(arguments...));
}

}  // namespace kfuse

#endif
