// SPDX-License-Identifier: Apache-2.0
// Kernels with one fault each, for checks.py: compiled for both vendors, under the names that kfuse's kernels have.

namespace Kokkos {
template <unsigned threads, unsigned residents>
struct LaunchBounds;
template <class... Properties>
struct TeamPolicy;
namespace Impl {
template <class Functor, class Policy>
struct ParallelFor {
  Functor functor;
};
template <class Driver, unsigned threads>
__global__ __launch_bounds__(threads) void launch(Driver driver) {
  driver.functor(threadIdx.x);
}
}  // namespace Impl
}  // namespace Kokkos

namespace kfuse {

enum class Access { wide, single };
template <class Element>
struct Load;
template <class Element>
struct Store;
template <class... Stage>
struct Chain;
struct MatrixUnit;
struct MfmaUnit;
struct WmmaUnit;

using Copy = Chain<Load<float>, Store<float>>;
struct alignas(16) Pack {
  float value[4];
};

template <class Real, int width, Access access, class C>
struct SoundKernel {
  Pack const* from;
  Pack* to;
  __device__ void operator()(int i) const { to[i] = from[i]; }
};

template <class Real, int width, Access access, class C>
struct NarrowKernel {  // wide, it says
  float const* from;
  float* to;
  __device__ void operator()(int i) const { to[i * 3] = from[i * 3]; }
};

template <class Real, int width, Access access, class C>
struct SpillingKernel {  // no register can be indexed by a number that is known at run time alone
  Pack const* from;
  Pack* to;
  int index;
  __device__ void operator()(int i) const {
    Pack held[32];
    for (int p = 0; p < 32; ++p) held[p * index % 32] = from[i + p];
    to[i] = held[index];
  }
};

template <class Unit, class Element>
struct TilesKernel {
  float const* from;
  float* to;
  __device__ void operator()(int i) const { to[i] = from[i] * from[i + 1]; }
};

template <class Real, int width, Access access, class C>
struct LargeKernel {
  Pack const* from;
  Pack* to;
  double more[84];
  __device__ void operator()(int i) const { to[i + int(more[83])] = from[i]; }
};

template <class Real, int width, Access access, class C>
struct GreedyKernel {  // holds 24 packs across a barrier
  Pack const* from;
  Pack* to;
  __device__ void operator()(int i) const { to[i] = held<24>(from + i, Pack{}); }

  template <int left>
  __device__ static Pack held(Pack const* at, Pack sum) {
    if constexpr (left == 0) {
      __syncthreads();
      return sum;
    } else {
      Pack const own = *at;
      Pack const rest =
          held<left - 1>(at + 256, {sum.value[0] + own.value[1], own.value[0], sum.value[2], own.value[3]});
      return {own.value[0] * rest.value[1], own.value[1] - rest.value[0], own.value[2] * rest.value[3],
              own.value[3] + rest.value[2]};
    }
  }
};

template <class Functor, int threads, int teams>
__global__ __launch_bounds__(threads) void team_kernel(Functor functor) {
  functor(int(threadIdx.x));
}

// By Kokkos on AMD GPUs, and by the backend itself on NVIDIA GPUs.
template <unsigned residents, class Functor>
void launch(Functor const& functor) {
#if defined(__HIP__)
  using Driver = Kokkos::Impl::ParallelFor<Functor, Kokkos::TeamPolicy<Kokkos::LaunchBounds<256, residents>>>;
  Kokkos::Impl::launch<Driver, 256><<<1, 256>>>(Driver{functor});
#else
  team_kernel<Functor, 256, int(residents)><<<1, 256>>>(functor);
#endif
}

}  // namespace kfuse

void faulty_kernels() {
  using kfuse::Access;
  using kfuse::Copy;
  kfuse::launch<1>(kfuse::SoundKernel<float, 4, Access::wide, Copy>{});
  kfuse::launch<1>(kfuse::NarrowKernel<float, 4, Access::wide, Copy>{});
  kfuse::launch<1>(kfuse::NarrowKernel<float, 4, Access::single, Copy>{});
  kfuse::launch<1>(kfuse::NarrowKernel<float, 2, Access::wide, Copy>{});
  kfuse::launch<1>(kfuse::SpillingKernel<float, 4, Access::wide, Copy>{});
  kfuse::launch<1>(kfuse::TilesKernel<kfuse::MatrixUnit, float>{});
  kfuse::launch<1>(kfuse::TilesKernel<kfuse::MfmaUnit, float>{});
  kfuse::launch<1>(kfuse::TilesKernel<kfuse::WmmaUnit, float>{});
  kfuse::launch<1>(kfuse::LargeKernel<float, 4, Access::wide, Copy>{});
  kfuse::launch<8>(kfuse::GreedyKernel<float, 4, Access::wide, Copy>{});
}
