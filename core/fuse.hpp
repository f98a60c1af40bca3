// SPDX-License-Identifier: Apache-2.0
// fuse: runs a chain as one kernel.
//
//   kfuse::fuse(space, "user::add_rmsnorm", load(x) | add(residual) | store(h) | rmsnorm(weight) | store(y));
#ifndef KFUSE_CORE_FUSE_HPP
#define KFUSE_CORE_FUSE_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/execute_rows.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace kfuse {

namespace impl {

// Lanes count on past their row's end by less than this margin: to the end of a segment, of packs of at most 8 values.
constexpr int largest_columns = std::numeric_limits<int>::max() - 65535;

// Would it pay to give each segment of a row a team? Only where whole rows leave half of the device idle.
template <class Space>
bool splits_rows(Space const& space, Shape shape, RowPlan const& plan) {
  if (Backend<Space>::is_host || plan.segments == 1) return false;
  return 2 * shape.rows <= std::ptrdiff_t(space.concurrency() / plan.layout.lanes);
}

// A chain that has been checked, has its kernel chosen and its scratch memory taken from the workspace, if there is
// one: nothing is left that could be refused when it is launched. For operators of several launches.
template <class Space, Stage... S>
class Fusion {
  using C = Chain<S...>;
  using Types = ChainTypes<C>;
  using Real = typename Types::Real;
  static_assert(Types::width * segment_layout<row_kind<C>>.packs() - 1 <= 65535, "largest_columns leaves as much room");
  static_assert((reaches<Space, S>() && ...),
                "kfuse: the execution space cannot reach the memory of a View in this chain");

 public:
  Fusion(Space const& space, std::string label, C const& chain, Workspace<Space>* workspace = nullptr)
      : space_(space), label_(std::move(label)), chain_(chain), shape_(shape_of(chain, label_)) {
    check_reach<Space>(chain, label_);
    check_chain(chain, label_, shape_);
    if (workspace != nullptr) workspace->check_memory(label_);
    check(shape_.columns <= largest_columns, label_,
          "rows have more than 2^31 - 2^16 columns (columns are counted in int); reshape to more rows of fewer "
          "columns");
    if (shape_.rows == 0 || shape_.columns == 0) return;
    in_groups_ = is_in_groups(chain, Types::width);
    wide_ = in_groups_ && shape_.columns % Types::width == 0 && is_wide(chain, Types::width);
    RowPlan const plan = row_plan<C>(shape_.columns, Types::width);
    if (Types::row_stages == 0 || !in_groups_ || workspace == nullptr || !splits_rows(space, shape_, plan)) return;
    std::size_t const slots = std::size_t(Types::row_stages) * std::size_t(shape_.rows) * std::size_t(plan.segments);
    partials_ = workspace->template take<std::byte>(label_, slots * slot_bytes<Real>(std::type_identity<C>{})).data;
  }

  void launch() const {
    if (shape_.rows == 0 || shape_.columns == 0) return;
    if (!Ledger::state(label_, partials_ != nullptr ? Types::row_stages + 1 : 1, traffic(chain_))) return;
    if constexpr (Types::has_groups)
      if (!in_groups_) return launch_rows<Real, 1, Access::single>(space_, label_, chain_, shape_, nullptr);
    if constexpr (!Backend<Space>::is_host)
      if (wide_) return launch_rows<Real, Types::width, Access::wide>(space_, label_, chain_, shape_, partials_);
    launch_rows<Real, Types::width, Access::single>(space_, label_, chain_, shape_, partials_);
  }

 private:
  Space const& space_;
  std::string label_;
  C chain_;
  Shape shape_;
  bool in_groups_ = true, wide_ = false;
  std::byte* partials_ = nullptr;  // of segments of rows, where several teams share one
};

}  // namespace impl

// Runs `chain` over its rows on `space`. `label` is what profilers show and what errors begin with. Returns before the
// work is done; allocates nothing and waits for nothing. Throws kfuse::Error before any launch if an argument is wrong.
template <class Space, class... S>
requires Kokkos::is_execution_space_v<Space>
void fuse(Space const& space, std::string label, Chain<S...> const& chain) {
  impl::Fusion(space, std::move(label), chain).launch();
}

// The same, and rows that are long and few are shared by several teams, which costs a launch for each row stage and
// memory of `workspace`. The bits do not change.
template <class Space, class... S>
requires Kokkos::is_execution_space_v<Space>
void fuse(Space const& space, std::string label, Chain<S...> const& chain, Workspace<Space>& workspace) {
  auto const scope = workspace.scope();
  impl::Fusion(space, std::move(label), chain, &workspace).launch();
}

}  // namespace kfuse

#endif
