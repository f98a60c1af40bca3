// SPDX-License-Identifier: Apache-2.0
// Matrix products of NVIDIA GPUs: cuBLASLt.
#ifndef KFUSE_BACKENDS_CUDA_BLAS_HPP
#define KFUSE_BACKENDS_CUDA_BLAS_HPP

#include <kfuse/backends/cuda/runtime.hpp>
#include <kfuse/backends/gpu/lt_blas.hpp>

#include <cstdint>

#include <cublasLt.h>

namespace kfuse::cuda {

// cuBLASLt under the names that gpu::LtBlas has for it.
struct Lt {
  static constexpr char const* name = "cuBLASLt";
  using Runtime = cuda::Runtime;

  using Status = cublasStatus_t;
  static constexpr auto success = CUBLAS_STATUS_SUCCESS;
  static constexpr auto not_supported = CUBLAS_STATUS_NOT_SUPPORTED;
  static constexpr auto invalid_value = CUBLAS_STATUS_INVALID_VALUE;
  static constexpr auto status_text = &cublasLtGetStatusString;

  using Handle = cublasLtHandle_t;
  static constexpr auto create = &cublasLtCreate;
  static constexpr auto destroy = &cublasLtDestroy;

  using Operation = cublasLtMatmulDesc_t;
  using OperationAttribute = cublasLtMatmulDescAttributes_t;
  static constexpr auto create_operation = &cublasLtMatmulDescCreate;
  static constexpr auto destroy_operation = &cublasLtMatmulDescDestroy;
  static constexpr auto set_operation = &cublasLtMatmulDescSetAttribute;
  static constexpr auto operation_first = CUBLASLT_MATMUL_DESC_TRANSA;
  static constexpr auto operation_epilogue = CUBLASLT_MATMUL_DESC_EPILOGUE;
  static constexpr auto operation_bias = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
  static constexpr auto transposed = CUBLAS_OP_T;
  static constexpr auto not_transposed = CUBLAS_OP_N;
  static constexpr auto sums_in_float = CUBLAS_COMPUTE_32F;
  static constexpr auto sums_in_double = CUBLAS_COMPUTE_64F;
  static constexpr auto no_epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  static constexpr auto bias = CUBLASLT_EPILOGUE_BIAS;
  static constexpr auto relu = CUBLASLT_EPILOGUE_RELU;
  static constexpr auto relu_bias = CUBLASLT_EPILOGUE_RELU_BIAS;
  static constexpr auto gelu = CUBLASLT_EPILOGUE_GELU;
  static constexpr auto gelu_bias = CUBLASLT_EPILOGUE_GELU_BIAS;

  using Layout = cublasLtMatrixLayout_t;
  using LayoutAttribute = cublasLtMatrixLayoutAttribute_t;
  static constexpr auto create_layout = &cublasLtMatrixLayoutCreate;
  static constexpr auto destroy_layout = &cublasLtMatrixLayoutDestroy;
  static constexpr auto set_layout = &cublasLtMatrixLayoutSetAttribute;
  static constexpr auto layout_batch = CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  static constexpr auto layout_batch_stride = CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
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

  using Preference = cublasLtMatmulPreference_t;
  using PreferenceAttribute = cublasLtMatmulPreferenceAttributes_t;
  static constexpr auto create_preference = &cublasLtMatmulPreferenceCreate;
  static constexpr auto destroy_preference = &cublasLtMatmulPreferenceDestroy;
  static constexpr auto set_preference = &cublasLtMatmulPreferenceSetAttribute;
  static constexpr auto preference_workspace = CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  // What else a choice of algorithm is bound to.
  template <class Set>
  static void refine(impl::Product const& p, Set const& set) {
    using gpu::alignment;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.residual.data ? p.residual.data : p.d.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d.data));
  }

  using Algorithm = cublasLtMatmulAlgo_t;
  using Proposal = cublasLtMatmulHeuristicResult_t;
  static constexpr auto propose = &cublasLtMatmulAlgoGetHeuristic;
  static constexpr auto multiply = &cublasLtMatmul;
};

class Blas : public gpu::LtBlas<Lt> {
 public:
  using gpu::LtBlas<Lt>::LtBlas;
};

}  // namespace kfuse::cuda

#endif
