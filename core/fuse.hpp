// SPDX-License-Identifier: Apache-2.0
// fuse: runs a chain as one kernel.
//
//   kfuse::fuse(space, "user::add_rmsnorm", load(x) | add(residual) | store(h) | rmsnorm(weight) | store(y));
#ifndef KFUSE_CORE_FUSE_HPP
#define KFUSE_CORE_FUSE_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/execute_rows.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <limits>
#include <string>

namespace kfuse {

namespace impl {

// A lane counts on past its row's end by less than this margin.
constexpr int largest_columns = std::numeric_limits<int>::max() - 65535;

// Would it pay to give each segment of a row a team? Only where whole rows leave half of the device idle.
template <class Space>
bool splits_rows(Space const& space, Shape shape, RowPlan const& plan) {
  if (Backend<Space>::is_host || plan.segments == 1) return false;
  return 2 * shape.rows <= std::ptrdiff_t(space.concurrency() / plan.layout.lanes);
}

template <class Space, class... S>
void fuse_on(Space const& space, std::string const& label, Chain<S...> const& chain, Workspace<Space>* workspace) {
  static_assert((reaches<Space, S>() && ...),
                "kfuse: the execution space cannot reach the memory of a View in this chain");
  using C = Chain<S...>;
  using Types = ChainTypes<C>;
  using Real = typename Types::Real;
  Shape const shape = shape_of(chain, label);
  check_chain(chain, label, shape);
  check(shape.columns <= largest_columns, label,
        "rows have more than 2^31 - 2^16 columns (columns are counted in int); reshape to more rows of fewer columns");
  if (shape.rows == 0 || shape.columns == 0) return;

  constexpr bool reduces = Types::row_stages > 0;
  RowPlan const plan = row_plan<C>(shape.columns, Types::width);
  bool const in_groups = group_width(chain, Types::width) == Types::width;
  bool const wide = in_groups && shape.columns % Types::width == 0 && is_wide(chain, Types::width);
  bool const split = reduces && in_groups && workspace != nullptr && splits_rows(space, shape, plan);

  auto const run = [&](std::byte* partials) {
    if (!Ledger::state(label, split ? Types::row_stages + 1 : 1, traffic(chain))) return;
    if constexpr (Types::has_groups)
      if (!in_groups) return launch_rows<Real, 1, Access::single>(space, label, chain, shape, nullptr);
    if constexpr (!Backend<Space>::is_host)
      if (wide) return launch_rows<Real, Types::width, Access::wide>(space, label, chain, shape, partials);
    launch_rows<Real, Types::width, Access::single>(space, label, chain, shape, partials);
  };
  if (!split) return run(nullptr);
  auto const scope = workspace->scope();
  std::size_t const slots = std::size_t(Types::row_stages) * std::size_t(shape.rows) * std::size_t(plan.segments);
  run(workspace->template take<std::byte>("fuse: partial sums", slots * slot_bytes<Real>(std::type_identity<C>{}))
          .data);
}

}  // namespace impl

// Runs `chain` over its rows on `space`. `label` is what profilers show and what errors begin with. Returns before the
// work is done; allocates nothing and waits for nothing. Throws kfuse::Error before any launch if an argument is wrong.
template <class Space, class... S>
requires Kokkos::is_execution_space_v<Space>
void fuse(Space const& space, std::string const& label, Chain<S...> const& chain) {
  impl::fuse_on<Space>(space, label, chain, nullptr);
}

// The same, and rows that are long and few are shared by several teams, which costs a launch for each row stage and
// memory of `workspace`. The bits do not change.
template <class Space, class... S>
requires Kokkos::is_execution_space_v<Space>
void fuse(Space const& space, std::string const& label, Chain<S...> const& chain, Workspace<Space>& workspace) {
  impl::fuse_on<Space>(space, label, chain, &workspace);
}

}  // namespace kfuse

#endif
