// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, on the caller's stream, in scratch memory of our own.
//
// cuBLASLt counts columns first, so it is given the transposed product: its d, [columns, rows], is its a (our b) times
// its b (our a). All of it is then contiguous the way our rows are, and a bias, one value for each of its rows, is one
// for each of our columns.
#ifndef KFUSE_BACKENDS_CUDA_BLAS_HPP
#define KFUSE_BACKENDS_CUDA_BLAS_HPP

#include <kfuse/backends/cuda/device.hpp>
#include <kfuse/backends/cuda/graph.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>

namespace kfuse::cuda {

// Throws if a call of cuBLASLt did not succeed. `what` says what was tried.
inline void check_status(cublasStatus_t status, char const* what) {
  impl::check(status == CUBLAS_STATUS_SUCCESS, "blas",
              [&] { return std::string("cuBLASLt could not ") + what + ": " + cublasLtGetStatusString(status); });
}

class Blas {
 public:
  using Product = impl::Product;

  Blas(Kokkos::Cuda const& space, std::size_t workspace_bytes, bool tune)
      : workspace_bytes_(workspace_bytes),
        memory_(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::blas::workspace"),
                workspace_bytes + workspace_alignment),
        tune_(tune) {
    check_status(cudaSetDevice(space.cuda_device()), "choose the device");
    cublasLtHandle_t handle = nullptr;
    check_status(cublasLtCreate(&handle), "start");
    handle_.reset(handle);
  }

  // A residual is added before the activation, so it comes without one. Epilogues are not for fp64.
  static constexpr bool fuses(ElementType element, impl::ProductEpilogue const& epilogue) {
    bool const activates = epilogue.activation != impl::ProductActivation::none;
    if (element == ElementType::fp64) return !epilogue.bias && !activates;
    return !activates || epilogue.residual == impl::Residual::none;
  }

  bool supports(Product const& p) { return p.depth > 0 && !plan_of(p).algorithms.empty(); }

  void run(Kokkos::Cuda const& space, Product const& p) {
    check_status(cudaSetDevice(space.cuda_device()), "choose the device");  // as every call of Kokkos does
    Plan& plan = plan_of(p);
    if (p.bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (!std::exchange(plan.in_use, true) && tune_ && !is_captured(space)) keep_fastest(space, p, plan);
    multiply(space, p, plan, plan.algorithms.front(), p.d.data);
  }

 private:
  using Handle = Unique<cublasLtHandle_t, &cublasLtDestroy>;
  using Operation = Unique<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
  using Layout = Unique<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
  using Preference = Unique<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;
  using Memory = Kokkos::View<std::byte*, Kokkos::CudaSpace>;

  // A name for cuBLASLt's unnamed struct, of which nvcc 13.0 compiles no vector.
  struct Algorithm {
    cublasLtMatmulAlgo_t value;
  };
  struct Plan {
    Operation operation;
    Layout a, b, c, d;                  // as cuBLASLt names them
    std::vector<Algorithm> algorithms;  // the best first; none: it does not take such products
    bool in_use = false;
  };
  // All that a choice of algorithm depends on: types, sizes, strides, what is fused, and how pointers are aligned.
  using Key = std::array<std::ptrdiff_t, 20>;

  static std::uint32_t alignment(void const* data) {
    auto const address = reinterpret_cast<std::uintptr_t>(data);
    return std::uint32_t(std::min<std::uintptr_t>(address & (~address + 1), 256));
  }
  static Key key_of(Product const& p) {
    return {std::ptrdiff_t(p.element),
            std::ptrdiff_t(p.transpose_b),
            std::ptrdiff_t(p.activation),
            p.batch,
            p.rows,
            p.columns,
            p.depth,
            p.a.row_stride,
            p.a.batch_stride,
            p.b.row_stride,
            p.b.batch_stride,
            p.d.row_stride,
            p.d.batch_stride,
            p.residual.row_stride,
            p.residual.batch_stride,
            alignment(p.a.data),
            alignment(p.b.data),
            alignment(p.d.data),
            alignment(p.residual.data),
            alignment(p.bias)};
  }

  static cudaDataType_t data_type(ElementType element) {
    switch (element) {
      case ElementType::fp64:
        return CUDA_R_64F;
      case ElementType::fp32:
        return CUDA_R_32F;
      case ElementType::bf16:
        return CUDA_R_16BF;
      default:
        return CUDA_R_16F;
    }
  }
  static cublasLtEpilogue_t epilogue(Product const& p) {
    if (p.activation == impl::ProductActivation::relu)
      return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (p.activation == impl::ProductActivation::gelu_tanh)
      return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class T>
  static void set(Operation const& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
    check_status(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
                 "describe a product");
  }
  template <class T>
  static void set(Layout const& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check_status(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)), "describe a matrix");
  }
  template <class T>
  static void set(Preference const& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_status(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
                 "take a preference");
  }

  // Our [rows, columns] matrices.
  template <class Data>
  static Layout layout(Product const& p, impl::Operand<Data> const& operand, int rows, int columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check_status(cublasLtMatrixLayoutCreate(&made, data_type(p.element), std::uint64_t(columns), std::uint64_t(rows),
                                            operand.row_stride),
                 "describe a matrix");
    Layout result(made);
    set(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t(p.batch));
    set(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t(operand.batch_stride));
    return result;
  }

  // Sums in float (never TF32), or double; parts of split sums are kept in that type, too.
  static Operation operation(Product const& p) {
    bool const wide = p.element == ElementType::fp64;
    cublasLtMatmulDesc_t made = nullptr;
    check_status(
        cublasLtMatmulDescCreate(&made, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F),
        "describe a product");
    Operation result(made);
    set(result, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(result, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p));
    if (p.bias) set(result, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);  // its alignment counts
    return result;
  }
  Preference preference(Product const& p) const {
    cublasLtMatmulPreference_t made = nullptr;
    check_status(cublasLtMatmulPreferenceCreate(&made), "take a preference");
    Preference result(made);
    set(result, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_);
    set(result, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(result, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b.data));
    set(result, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a.data));
    set(result, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.residual.data ? p.residual.data : p.d.data));
    set(result, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d.data));
    return result;
  }

  Plan& plan_of(Product const& p) {
    auto const [place, is_new] = plans_.try_emplace(key_of(p));
    if (is_new) try {
        place->second = make_plan(p);
      } catch (...) {
        plans_.erase(place);
        throw;
      }
    return place->second;
  }
  Plan make_plan(Product const& p) const {
    bool const transposed = p.transpose_b == Transpose::yes;
    Plan plan{operation(p),
              layout(p, p.b, transposed ? p.columns : p.depth, transposed ? p.depth : p.columns),
              layout(p, p.a, p.rows, p.depth),
              p.residual.data ? layout(p, p.residual, p.rows, p.columns) : layout(p, p.d, p.rows, p.columns),
              layout(p, p.d, p.rows, p.columns),
              {}};
    Preference const wanted = preference(p);
    std::array<cublasLtMatmulHeuristicResult_t, 8> found;
    int count = 0;
    auto const status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.c.get(),
                                       plan.d.get(), wanted.get(), tune_ ? int(found.size()) : 1, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return plan;
    check_status(status, "propose an algorithm");
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) plan.algorithms.push_back({found[i].algo});
    return plan;
  }

  void multiply(Kokkos::Cuda const& space, Product const& p, Plan const& plan, Algorithm const& algorithm,
                void* d) const {
    bool const wide = p.element == ElementType::fp64;
    float const alpha = float(p.alpha), beta = p.residual.data ? 1 : 0;
    double const wide_alpha = p.alpha, wide_beta = beta;
    check_status(cublasLtMatmul(handle_.get(), plan.operation.get(),
                                wide ? static_cast<void const*>(&wide_alpha) : &alpha, p.b.data, plan.a.get(), p.a.data,
                                plan.b.get(), wide ? static_cast<void const*>(&wide_beta) : &beta,
                                p.residual.data ? p.residual.data : d, plan.c.get(), d, plan.d.get(), &algorithm.value,
                                workspace(), workspace_bytes_, space.cuda_stream()),
                 "multiply");
  }

  static bool is_captured(Kokkos::Cuda const& space) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_status(cudaStreamIsCapturing(space.cuda_stream(), &status), "tell if a stream is captured");
    return status != cudaStreamCaptureStatusNone;
  }

  // Leaves the fastest algorithm alone in the plan. The products go to memory of their own: d may be added to itself.
  void keep_fastest(Kokkos::Cuda const& space, Product const& p, Plan& plan) const {
    if (plan.algorithms.size() < 2) return;
    std::size_t const size = p.element == ElementType::fp64 ? 8 : p.element == ElementType::fp32 ? 4 : 2;
    std::size_t const elements =
        std::size_t((p.batch - 1) * p.d.batch_stride + (p.rows - 1) * p.d.row_stride) + std::size_t(p.columns);
    Memory const d(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::blas::tune"), elements * size);
    Timer timer;
    double best = std::numeric_limits<double>::infinity();
    Algorithm fastest = plan.algorithms.front();
    for (Algorithm const& algorithm : plan.algorithms) {
      multiply(space, p, plan, algorithm, d.data());  // the first run loads its code
      for (int repeat = 0; repeat < 3; ++repeat) {
        timer.start(space);
        for (int i = 0; i < 5; ++i) multiply(space, p, plan, algorithm, d.data());
        timer.stop(space);
        if (double const seconds = timer.seconds(); seconds < best) {
          best = seconds;
          fastest = algorithm;
        }
      }
    }
    plan.algorithms = {fastest};
  }

  // cuBLASLt asks for more than Kokkos' allocations are aligned to.
  static constexpr std::uintptr_t workspace_alignment = 256;
  void* workspace() const {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((address + workspace_alignment - 1) / workspace_alignment * workspace_alignment);
  }

  std::size_t workspace_bytes_;
  Memory memory_;
  bool tune_;
  Handle handle_;
  std::map<Key, Plan> plans_;
};

}  // namespace kfuse::cuda

#endif
