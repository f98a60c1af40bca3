// SPDX-License-Identifier: Apache-2.0
// Argmax of each row: the column of its largest value, and the value where it is asked for:
//   indices(r) = the first c for which x(r, c) is largest,   values(r) = x(r, indices(r))
//
// The chain load | argmax, which reads each row once. As in PyTorch, a NaN is larger than every number, and of equals,
// NaNs among them, the first counts. A row that is -infinity throughout gives column 0.
#ifndef KFUSE_FUSED_ARGMAX_HPP
#define KFUSE_FUSED_ARGMAX_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/argmax.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike I>
auto argmax_chain(X const& x, I const& indices) {
  return load(tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::argmax", "x")) |
         argmax(tensor_of<1, Space, int>(indices, "kfuse::argmax", "indices"));
}
template <class Space, TensorLike X, TensorLike V, TensorLike I>
auto argmax_chain(X const& x, V const& values, I const& indices) {
  return load(tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::argmax", "x")) |
         argmax(tensor_of<1, Space, ElementOf<X>>(values, "kfuse::argmax", "values"),
                tensor_of<1, Space, int>(indices, "kfuse::argmax", "indices"));
}

}  // namespace impl

// x: [rows, columns], one column at least; indices: int, [rows]. Returns before the work is done.
template <class Space, TensorLike X, TensorLike I>
void argmax(Space const& space, X const& x, I const& indices) {
  fuse(space, "kfuse::argmax", impl::argmax_chain<Space>(x, indices));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike I>
void argmax(Space const& space, X const& x, I const& indices, Workspace<Space>& workspace) {
  fuse(space, "kfuse::argmax", impl::argmax_chain<Space>(x, indices), workspace);
}

// values: of the element type of x, [rows].
template <class Space, TensorLike X, TensorLike V, TensorLike I>
void argmax(Space const& space, X const& x, V const& values, I const& indices) {
  fuse(space, "kfuse::argmax", impl::argmax_chain<Space>(x, values, indices));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike V, TensorLike I>
void argmax(Space const& space, X const& x, V const& values, I const& indices, Workspace<Space>& workspace) {
  fuse(space, "kfuse::argmax", impl::argmax_chain<Space>(x, values, indices), workspace);
}

// The same arguments as above, without the workspace.
template <class Space, TensorLike... T>
Traffic argmax_traffic(Space const&, T const&... arguments) {
  return traffic(impl::argmax_chain<Space>(arguments...));
}

}  // namespace kfuse

#endif
