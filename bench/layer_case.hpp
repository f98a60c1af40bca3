// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BENCH_LAYER_CASE_HPP
#define KFUSE_BENCH_LAYER_CASE_HPP

#include <kfuse/core/device.hpp>
#include <kfuse/models/eager_layer.hpp>
#include <kfuse/models/fused_layer.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layer.hpp"

namespace bench {

// Everything that layers need to run, but for input, output and workspace.
template <class Space, class Element>
struct LayerData {
  kfuse::LayerConfig config;
  std::vector<kfuse::LayerWeights<Space, Element>> weights;
  std::vector<kfuse::KvCache<Space, Element>> caches;
  kfuse::Progress<Space> progress;
  kfuse::Matrix<Space, kfuse::Real<Element>> rope_table;

  LayerData(LayerRequest const& request) : config(request.config), progress(request.batch, request.sequence) {}
  kfuse::Layer<Space, Element> layer(int i) const { return {config, weights[i], caches[i], progress, rope_table}; }
};

// A View that the case will allocate by itself, counted.
template <class View, class Space, class... Extent>
View counted(Memory<Space>& memory, Extent... extent) {
  std::size_t const before = memory.block.used();
  auto const t = empty<typename View::value_type>(memory, extent...);
  memory.elsewhere += memory.block.used() - before;
  return View(t.data, std::size_t(extent)...);
}

template <class Space, class Element>
void count_layer(Memory<Space>& memory, LayerRequest const& request, LayerData<Space, Element>& data) {
  using Weights = kfuse::LayerWeights<Space, Element>;
  using Cache = kfuse::KvCache<Space, Element>;
  using Table = kfuse::Matrix<Space, kfuse::Real<Element>>;
  auto const& c = request.config;
  for (int i = 0; i < request.layers; ++i) {
    Weights& weights = data.weights.emplace_back();
    Weights::for_each(weights, c, [&]<class View>(char const*, View& view, int rows, int columns) {
      if constexpr (View::rank() == 2)
        view = counted<View>(memory, rows, columns);
      else
        view = counted<View>(memory, columns);
    });
    Cache& cache = data.caches.emplace_back(c, 0, 0);
    for (auto* part : {&cache.keys, &cache.values})
      *part = counted<typename Cache::Memory>(memory, request.batch, c.kv_heads, request.context, c.head_dim);
  }
  if (c.family == kfuse::Family::llama) data.rope_table = counted<Table>(memory, request.context, c.head_dim);
}

template <class Space, class Element>
void fill(Memory<Space>& memory, Element* data, std::size_t size, double low, double high) {
  Kokkos::parallel_for("kfuse::bench::fill",
                       Kokkos::RangePolicy<Space, Kokkos::IndexType<std::ptrdiff_t>>(memory.space, 0, size),
                       FillKernel<Element>{data, ++memory.seed, low, high});
}

// Weights from the file or random, caches as past tokens might have left them.
template <class Space, class Element>
void make_layer(Memory<Space>& memory, LayerRequest const& request, LayerData<Space, Element>& data) {
  for (int i = 0; i < request.layers; ++i) {
    if (request.weights)
      data.weights.push_back(
          kfuse::load_weights<Space, Element>(*request.weights, request.config, request.layer_index + i));
    else
      data.weights.push_back(kfuse::random_weights<Space, Element>(memory.space, request.config, 1 + i));
    auto const& cache = data.caches.emplace_back(request.config, request.batch, request.context);
    fill(memory, cache.keys.data(), cache.keys.size(), -1.7, 1.7);
    fill(memory, cache.values.data(), cache.values.size(), -1.7, 1.7);
  }
  data.rope_table = kfuse::rope_table<Space, Element>(request.config, request.context);
}

// The last `sequence` of `context` tokens are the current ones.
template <class Space>
void place_tokens(Space const& space, LayerRequest const& request, kfuse::Progress<Space> const& progress) {
  Kokkos::deep_copy(space, progress.lengths, request.context - request.sequence);
  progress.advance(space);
}

template <class Element>
struct WidenKernel {
  Element const* from;
  double* to;
  KOKKOS_FUNCTION void operator()(std::ptrdiff_t i) const { to[i] = double(kfuse::to_real(from[i])); }
};
template <class Space, class Element>
void widen(Space const& space, Element const* from, double* to, std::size_t size) {
  Kokkos::parallel_for("kfuse::bench::widen",
                       Kokkos::RangePolicy<Space, Kokkos::IndexType<std::ptrdiff_t>>(space, 0, size),
                       WidenKernel<Element>{from, to});
}

// The output of layer `i` computed eagerly in double from the same numbers, [rows * hidden].
template <class Space, class Element>
std::vector<double> layer_in_double(Space const& space, LayerRequest const& request,
                                    LayerData<Space, Element> const& data, int i, kfuse::Tensor<Element, 2> const& x) {
  LayerData<Space, double> wide(request);
  wide.weights.push_back(kfuse::convert_weights<double>(space, request.config, data.weights[i]));
  auto const& cache = wide.caches.emplace_back(request.config, request.batch, request.context);
  widen(space, data.caches[i].keys.data(), cache.keys.data(), cache.keys.size());
  widen(space, data.caches[i].values.data(), cache.values.data(), cache.values.size());
  wide.rope_table = kfuse::rope_table<Space, double>(request.config, request.context);
  place_tokens(space, request, wide.progress);
  kfuse::Matrix<Space, double> const in("kfuse::bench::x", x.extent(0), x.extent(1));
  kfuse::Matrix<Space, double> const out("kfuse::bench::y", x.extent(0), x.extent(1));
  widen(space, x.data, in.data(), in.size());

  kfuse::Blas<Space> blas(space);
  auto const run = [&](kfuse::Workspace<Space>& workspace) {
    kfuse::Tensor<double const, 2> const from = kfuse::as_tensor(in);
    kfuse::eager_layer<Space, double>(space, blas, workspace, wide.layer(0), from, kfuse::as_tensor(out));
  };
  auto counting = kfuse::Workspace<Space>::counting();
  {
    kfuse::Ledger const ledger(kfuse::Ledger::Execution::none);
    run(counting);
  }
  kfuse::Workspace<Space> workspace(counting.peak());
  run(workspace);
  std::vector<double> values(out.size());
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const host(
      values.data(), out.extent(0), out.extent(1));
  space.fence("kfuse::bench: the reference is there");
  Kokkos::deep_copy(host, out);
  return values;
}

// Is there memory, and on the host time, to do it all in double?
template <class Space, class Element>
bool allows_reference(Memory<Space> const& memory, LayerRequest const& request) {
  auto const& c = request.config;
  double const tokens = double(request.batch) * request.sequence;
  double const weights = double(kfuse::layer_weight_bytes<double>(c)) / sizeof(double);
  double const keys = double(request.batch) * c.kv_heads * request.context * c.head_dim;
  double const scores = tokens * c.heads * request.context;
  double const values = weights + 2 * keys + 2 * scores + tokens * (6 * c.hidden + 3 * c.intermediate);
  double const operations = 2 * tokens * weights + 4 * scores * c.head_dim;
  if (kfuse::impl::Backend<Space>::is_host && operations > 4e10) return false;
  return values * sizeof(double) < 0.5 * double(kfuse::device_facts(memory.space).memory_free);
}

// What a layer may deviate from one in double, relative to max(|y|, 1): sums of hundreds of numbers that were rounded.
constexpr double layer_tolerance(kfuse::ElementType type) {
  switch (type) {
    case kfuse::ElementType::fp64:
      return 1e-10;
    case kfuse::ElementType::fp32:
      return 1e-4;
    case kfuse::ElementType::fp16:
      return 1e-2;
    default:
      return 6e-2;
  }
}

template <class Space, class Element>
Case<Space> layer_case(Memory<Space>& memory, LayerRequest const& request) {
  using Out = kfuse::Tensor<Element, 2>;
  auto const data = std::make_shared<LayerData<Space, Element>>(request);
  int const rows = request.batch * request.sequence;
  Out const x = random<Element>(memory, -1.7, 1.7, rows, request.config.hidden);
  std::vector<Out> y;
  for (int i = 0; i < request.layers; ++i) y.push_back(empty<Element>(memory, rows, request.config.hidden));
  if (memory.is_counting) {
    count_layer(memory, request, *data);
  } else {
    make_layer(memory, request, *data);
    place_tokens(memory.space, request, data->progress);
  }

  auto const all_layers = [=](Context<Space> const& on, kfuse::LayerFunction<Space, Element>& run) {
    for (int i = 0; i < int(y.size()); ++i) run(on.space, on.blas, on.workspace, data->layer(i), x, y[i]);
  };
  Case<Space> result{.fused = [=](Context<Space> const& on) { all_layers(on, kfuse::fused_layer<Space, Element>); },
                     .eager = [=](Context<Space> const& on) { all_layers(on, kfuse::eager_layer<Space, Element>); },
                     .layers = request.layers};
  bool const with_reference = !memory.is_counting && allows_reference<Space, Element>(memory, request);
  for (int i = 0; i < request.layers; ++i) {
    auto const known = std::make_shared<std::vector<double>>();
    auto const reference = [=, space = memory.space](std::ptrdiff_t row) {
      if (known->empty()) *known = layer_in_double(space, request, *data, i, x);
      auto const first = known->begin() + row * request.config.hidden;
      return std::vector<double>(first, first + request.config.hidden);
    };
    Output out = output<Element>("y", y[i], {});
    if (with_reference) out.reference = reference;
    out.allowed = layer_tolerance(out.type);
    out.floor = 1;
    out.rows_checked = rows;
    if (request.layers > 1) out.name += " of layer " + std::to_string(i);
    result.outputs.push_back(out);
  }
  return result;
}

template <class Element>
Case<DeviceSpace> LayerMaker<Element>::on_device(Memory<DeviceSpace>& memory, LayerRequest const& request) {
  return layer_case<DeviceSpace, Element>(memory, request);
}
template <class Element>
Case<HostSpace> LayerMaker<Element>::on_host(Memory<HostSpace>& memory, LayerRequest const& request) {
  return layer_case<HostSpace, Element>(memory, request);
}

}  // namespace bench

#endif
