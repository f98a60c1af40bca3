// SPDX-License-Identifier: Apache-2.0
// What each file here calls its operator with, so that its kernels are compiled for all targets. The files are found by
// name: <operator>.cpp for fused/<operator>.hpp. They are never run, and need no GPU.
#ifndef KFUSE_TESTS_DEVICE_CODE_ARGUMENTS_HPP
#define KFUSE_TESTS_DEVICE_CODE_ARGUMENTS_HPP

#include <kfuse/core/element.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse {
template <class Space>
class Blas;
}

using Space = Kokkos::DefaultExecutionSpace;

// Nothing is known of them, so no compiler can leave a kernel out.
template <class Element>
struct Arguments {
  Space const& space;
  kfuse::Workspace<Space>& workspace;
  kfuse::Blas<Space>& blas;
  kfuse::Tensor<Element, 1> vector;
  kfuse::Tensor<Element, 2> matrix;
  kfuse::Tensor<Element, 3> batch;
  kfuse::Tensor<Element, 4> heads;
  kfuse::Tensor<int, 1> indices;
  kfuse::Tensor<std::uint8_t, 2> visible;
};

// A 16-bit type and float: kernels of the other 16-bit type are the same but for conversions and, in attention, the
// matrix instruction. What doubles need more is seen in chain.cpp, and where they compute at length.
struct AllArguments {
  Arguments<kfuse::bf16> bf16;
  Arguments<float> fp32;
  Arguments<double> fp64;
};

template <class F>
void for_each_element(AllArguments const& arguments, F const& call) {
  call(arguments.bf16);
  call(arguments.fp32);
}

template <class F>
void for_each_element_and_double(AllArguments const& arguments, F const& call) {
  for_each_element(arguments, call);
  call(arguments.fp64);
}

// What each file defines.
void device_code(AllArguments const& arguments);

#endif
