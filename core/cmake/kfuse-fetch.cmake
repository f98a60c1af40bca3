# SPDX-License-Identifier: Apache-2.0
# Downloads and builds the official releases of Kokkos and, for the host, Kokkos Kernels.
include(FetchContent)

function(kfuse_fetch name version sha256)
  set(url https://github.com/kokkos/${name}/releases/download/${version}/${name}-${version}.tar.gz)
  set(archive ${PROJECT_BINARY_DIR}/${name}-${version}.tar.gz)
  message(STATUS "Fetching ${url}")
  if(NOT EXISTS ${archive})
    file(DOWNLOAD ${url} ${archive}.part INACTIVITY_TIMEOUT 60 STATUS status)
    list(POP_FRONT status code reason)
    if(code)
      message(FATAL_ERROR "kfuse could not download ${url} (${reason}).\nInstall Kokkos by hand or by this system's "
        "package manager, and point at it with -DKokkos_ROOT=FOLDER, or make Kokkos_ROOT=FOLDER.")
    endif()
    file(RENAME ${archive}.part ${archive})
  endif()
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  FetchContent_Declare(${name} URL ${archive} URL_HASH SHA256=${sha256})
  FetchContent_MakeAvailable(${name})
endfunction()

set(Kokkos_ENABLE_SERIAL ON CACHE BOOL "")
if(kfuse_BACKEND AND NOT kfuse_BACKEND STREQUAL HOST)
  set(Kokkos_ENABLE_${kfuse_BACKEND} ON CACHE BOOL "")
endif()
if(kfuse_BACKEND MATCHES "CUDA|HIP")
  set(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE ON CACHE BOOL "")
endif()
kfuse_fetch(kokkos 5.0.2 188817bb452ca805ee8701f1c5adbbb4fb83dc8d1c50624566a18a719ba0fa5e)

if(NOT kfuse_BACKEND MATCHES "CUDA|HIP")
  set(KokkosKernels_ADD_DEFAULT_ETI OFF CACHE BOOL "")  # kfuse instantiates the few functions that it calls
  set(KokkosKernels_ENABLE_ALL_COMPONENTS OFF CACHE BOOL "")
  set(KokkosKernels_ENABLE_COMPONENT_BLAS ON CACHE BOOL "")
  find_package(BLAS QUIET)
  set(KokkosKernels_ENABLE_TPL_BLAS ${BLAS_FOUND} CACHE BOOL "")
  kfuse_fetch(kokkos-kernels 5.0.2 7c7af2c3659ecc620cc7b7016876330d9f288e8c6fd7b70b70907687df823b43)
endif()
