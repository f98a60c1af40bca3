// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_HIPBLASLT_HPP
#define KFUSE_BACKENDS_HIP_HIPBLASLT_HPP

#if defined(KFUSE_HIPBLASLT)

#include <kfuse/backends/gpu/lt_blas.hpp>
#include <kfuse/backends/hip/runtime.hpp>

#include <hipblaslt/hipblaslt.h>

#include <string>

namespace kfuse::hip {

// hipBLASLt under the names that gpu::LtBlas has for it. Compiled, and not yet run.
struct Lt {
  static constexpr char const* name = "hipBLASLt";
  using Runtime = hip::Runtime;

  using Status = hipblasStatus_t;
  static constexpr auto success = HIPBLAS_STATUS_SUCCESS;
  static constexpr auto not_supported = HIPBLAS_STATUS_NOT_SUPPORTED;
  static constexpr auto invalid_value = HIPBLAS_STATUS_INVALID_VALUE;
  static std::string status_text(Status status) { return "status " + std::to_string(int(status)); }

  using Handle = hipblasLtHandle_t;
  static constexpr auto create = &hipblasLtCreate;
  static constexpr auto destroy = &hipblasLtDestroy;

  using Operation = hipblasLtMatmulDesc_t;
  using OperationAttribute = hipblasLtMatmulDescAttributes_t;
  static constexpr auto create_operation = &hipblasLtMatmulDescCreate;
  static constexpr auto destroy_operation = &hipblasLtMatmulDescDestroy;
  static constexpr auto set_operation = &hipblasLtMatmulDescSetAttribute;
  static constexpr auto operation_first = HIPBLASLT_MATMUL_DESC_TRANSA;
  static constexpr auto operation_epilogue = HIPBLASLT_MATMUL_DESC_EPILOGUE;
  static constexpr auto operation_bias = HIPBLASLT_MATMUL_DESC_BIAS_POINTER;
  static constexpr auto transposed = HIPBLAS_OP_T;
  static constexpr auto not_transposed = HIPBLAS_OP_N;
  static constexpr auto sums_in_float = HIPBLAS_COMPUTE_32F;
  static constexpr auto sums_in_double = HIPBLAS_COMPUTE_64F;
  static constexpr auto no_epilogue = HIPBLASLT_EPILOGUE_DEFAULT;
  static constexpr auto bias = HIPBLASLT_EPILOGUE_BIAS;
  static constexpr auto relu = HIPBLASLT_EPILOGUE_RELU;
  static constexpr auto relu_bias = HIPBLASLT_EPILOGUE_RELU_BIAS;
  static constexpr auto gelu = HIPBLASLT_EPILOGUE_GELU;
  static constexpr auto gelu_bias = HIPBLASLT_EPILOGUE_GELU_BIAS;

  using Layout = hipblasLtMatrixLayout_t;
  using LayoutAttribute = hipblasLtMatrixLayoutAttribute_t;
  static constexpr auto create_layout = &hipblasLtMatrixLayoutCreate;
  static constexpr auto destroy_layout = &hipblasLtMatrixLayoutDestroy;
  static constexpr auto set_layout = &hipblasLtMatrixLayoutSetAttribute;
  static constexpr auto layout_batch = HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  static constexpr auto layout_batch_stride = HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
  static hipDataType data_type(ElementType element) {
    switch (element) {
      case ElementType::fp64:
        return HIP_R_64F;
      case ElementType::fp32:
        return HIP_R_32F;
      case ElementType::bf16:
        return HIP_R_16BF;
      default:
        return HIP_R_16F;
    }
  }

  using Preference = hipblasLtMatmulPreference_t;
  using PreferenceAttribute = hipblasLtMatmulPreferenceAttributes_t;
  static constexpr auto create_preference = &hipblasLtMatmulPreferenceCreate;
  static constexpr auto destroy_preference = &hipblasLtMatmulPreferenceDestroy;
  static constexpr auto set_preference = &hipblasLtMatmulPreferenceSetAttribute;
  static constexpr auto preference_workspace = HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  template <class Set>
  static void refine(impl::Product const&, Set const&) {}

  using Algorithm = hipblasLtMatmulAlgo_t;
  using Proposal = hipblasLtMatmulHeuristicResult_t;
  static constexpr auto propose = &hipblasLtMatmulAlgoGetHeuristic;
  static constexpr auto multiply = &hipblasLtMatmul;
};

}  // namespace kfuse::hip

#endif
#endif
