# SPDX-License-Identifier: Apache-2.0
# Finds what kfuse stands on and links the target kfuse with it: Kokkos and, where they are there, Kokkos Kernels and
# the GPU vendor's matrix library. Nothing is downloaded unless kfuse_FETCH_DEPENDENCIES is on (kfuse-fetch.cmake).
#
# Sets kfuse_BACKENDS, of cuda and hip those that this Kokkos has; kfuse_KOKKOS_KERNELS, the name of its target or
# nothing; and kfuse_device_sources(), which hands sources that hold kernels to the compiler that Kokkos uses.

set(kfuse_KOKKOS_VERSIONS 4.6.99...<6)
set(kfuse_BACKEND "" CACHE STRING "What Kokkos must have: HOST (no GPU), OPENMP, CUDA or HIP; empty: whatever it has")
option(kfuse_FETCH_DEPENDENCIES "Download and build Kokkos and Kokkos Kernels instead of looking for them" OFF)

if(kfuse_FETCH_DEPENDENCIES AND NOT TARGET Kokkos::kokkos)
  include(${CMAKE_CURRENT_LIST_DIR}/kfuse-fetch.cmake)
elseif(NOT TARGET Kokkos::kokkos)
  find_package(Kokkos ${kfuse_KOKKOS_VERSIONS} CONFIG QUIET)
endif()

set(problem "")
if(NOT TARGET Kokkos::kokkos)
  set(problem "found no Kokkos of version 4.6.99 to 5.x")
  if(Kokkos_CONSIDERED_VERSIONS)
    string(APPEND problem " (only ${Kokkos_CONSIDERED_VERSIONS}: ${Kokkos_CONSIDERED_CONFIGS})")
  endif()
elseif(kfuse_BACKEND STREQUAL HOST AND (Kokkos_ENABLE_CUDA OR Kokkos_ENABLE_HIP OR Kokkos_ENABLE_SYCL))
  set(problem "wants a Kokkos for the host alone, but the one in ${Kokkos_DIR} is built for a GPU (${Kokkos_DEVICES})")
elseif(kfuse_BACKEND AND NOT kfuse_BACKEND STREQUAL HOST AND NOT Kokkos_ENABLE_${kfuse_BACKEND})
  set(problem "wants a Kokkos with ${kfuse_BACKEND}, but the one in ${Kokkos_DIR} has ${Kokkos_DEVICES}")
endif()
if(problem)
  message(FATAL_ERROR "kfuse ${problem}.\nPoint at another one with -DKokkos_ROOT=FOLDER; or let `make` bring one; "
    "or set -Dkfuse_FETCH_DEPENDENCIES=ON, which downloads and builds the official release.")
endif()
message(STATUS "kfuse builds on Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}; ${Kokkos_DIR})")
target_link_libraries(kfuse INTERFACE Kokkos::kokkos)

# Only Kokkos Kernels beside that Kokkos, or where the user points: one that happens to be in the system may belong
# to another Kokkos.
find_package(KokkosKernels CONFIG QUIET HINTS ${Kokkos_DIR}/.. NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH
  NO_CMAKE_PACKAGE_REGISTRY NO_CMAKE_SYSTEM_PACKAGE_REGISTRY)
set(kfuse_KOKKOS_KERNELS "")
foreach(name IN ITEMS Kokkos::kokkoskernels KokkosKernels::all_libs)  # upstream's name; Trilinos' name
  if(TARGET ${name})
    set(kfuse_KOKKOS_KERNELS ${name})
  endif()
endforeach()
if(kfuse_KOKKOS_KERNELS)
  message(STATUS "kfuse multiplies matrices on the host with Kokkos Kernels (${KokkosKernels_DIR})")
  target_link_libraries(kfuse INTERFACE ${kfuse_KOKKOS_KERNELS})
  target_compile_definitions(kfuse INTERFACE KFUSE_KOKKOS_KERNELS)
endif()

set(kfuse_BACKENDS "")
set(device_language CXX)  # stays so where CXX is the vendor's compiler, or Kokkos puts that in its place
foreach(language IN ITEMS CUDA HIP)
  if(NOT Kokkos_ENABLE_${language})
    continue()
  endif()
  string(TOLOWER ${language} folder)
  list(APPEND kfuse_BACKENDS ${folder})
  if(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)
    set(device_language ${language})
    if(NOT DEFINED CMAKE_${language}_ARCHITECTURES)
      string(REGEX REPLACE "^90$" "90a" architectures "${Kokkos_${language}_ARCHITECTURES}")  # a: with wgmma
      if(NOT architectures)
        message(FATAL_ERROR "kfuse cannot see which chip this Kokkos is built for: "
          "give -DCMAKE_${language}_ARCHITECTURES=...")
      endif()
      set(CMAKE_${language}_ARCHITECTURES ${architectures})
    endif()
    enable_language(${language})
    if(${folder}_std_20 IN_LIST CMAKE_${language}_COMPILE_FEATURES)
      target_compile_features(kfuse INTERFACE ${folder}_std_20)
    else()  # the compiler may well know C++20 though this CMake does not know that
      target_compile_options(kfuse INTERFACE $<$<COMPILE_LANGUAGE:${language}>:-std=c++20>)
    endif()
  endif()
endforeach()
if(Kokkos_ENABLE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(kfuse INTERFACE CUDA::cublasLt)
endif()
set(kfuse_HIP_BLAS "")
if(Kokkos_ENABLE_HIP)  # the better of what is there; without any of them, kfuse multiplies by a kernel of its own
  foreach(library IN ITEMS hipblaslt rocblas)
    find_package(${library} CONFIG QUIET HINTS $ENV{ROCM_PATH} /opt/rocm)
    if(TARGET roc::${library})
      set(kfuse_HIP_BLAS ${library})
      string(TOUPPER KFUSE_${library} definition)
      message(STATUS "kfuse multiplies matrices on the GPU with ${library} (${${library}_DIR})")
      target_link_libraries(kfuse INTERFACE roc::${library})
      target_compile_definitions(kfuse INTERFACE ${definition})
      break()
    endif()
  endforeach()
endif()

function(kfuse_device_sources)
  if(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${device_language})
  endif()
endfunction()
