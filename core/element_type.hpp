// SPDX-License-Identifier: Apache-2.0
// The names of element types at run time: on the command line, in files, and in calls of vendor libraries.
#ifndef KFUSE_CORE_ELEMENT_TYPE_HPP
#define KFUSE_CORE_ELEMENT_TYPE_HPP

namespace kfuse {

enum class ElementType { fp64, fp32, bf16, fp16, fp8_e4m3, fp8_e5m2 };

constexpr char const* name(ElementType type) {
  switch (type) {
    case ElementType::fp64:
      return "fp64";
    case ElementType::fp32:
      return "fp32";
    case ElementType::bf16:
      return "bf16";
    case ElementType::fp16:
      return "fp16";
    case ElementType::fp8_e4m3:
      return "fp8_e4m3";
    case ElementType::fp8_e5m2:
      return "fp8_e5m2";
  }
  return "unknown";
}

}  // namespace kfuse

#endif
