# Finds what kfuse stands on: Kokkos and, where they are there, Kokkos Kernels and the GPU vendor's matrix library.
# Nothing is downloaded unless kfuse_FETCH_DEPENDENCIES is on: kfuse-fetch.cmake then builds the official releases.
#
# Sets kfuse_LIBRARIES and kfuse_DEFINITIONS, for the target kfuse; kfuse_BACKENDS, of cuda and hip those that this
# Kokkos has; and kfuse_device_sources(), which hands sources that hold kernels to the compiler that Kokkos uses.

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
    string(APPEND problem " (only ${Kokkos_CONSIDERED_VERSIONS}, in ${Kokkos_CONSIDERED_CONFIGS})")
  endif()
elseif(kfuse_BACKEND STREQUAL HOST AND (Kokkos_ENABLE_CUDA OR Kokkos_ENABLE_HIP OR Kokkos_ENABLE_SYCL))
  set(problem "wants a Kokkos for the host alone, but the one in ${Kokkos_DIR} is built for a GPU (${Kokkos_DEVICES})")
elseif(kfuse_BACKEND AND NOT kfuse_BACKEND STREQUAL HOST AND NOT Kokkos_ENABLE_${kfuse_BACKEND})
  set(problem "wants a Kokkos with ${kfuse_BACKEND}, but the one in ${Kokkos_DIR} has ${Kokkos_DEVICES}")
endif()
if(problem)
  message(FATAL_ERROR "kfuse ${problem}.\nPoint at another one with -DKokkos_ROOT=FOLDER; or let `make` bring one; or set "
    "-Dkfuse_FETCH_DEPENDENCIES=ON, which downloads and builds the official release.")
endif()
set(kfuse_LIBRARIES Kokkos::kokkos)
set(kfuse_DEFINITIONS "")
set(kfuse_BACKENDS "")

# Only Kokkos Kernels beside that Kokkos, or where the user points: one that happens to be in the system may belong
# to another Kokkos.
find_package(KokkosKernels CONFIG QUIET HINTS ${Kokkos_DIR}/.. NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH
  NO_CMAKE_PACKAGE_REGISTRY NO_CMAKE_SYSTEM_PACKAGE_REGISTRY)
foreach(name IN ITEMS KokkosKernels::all_libs Kokkos::kokkoskernels)  # Trilinos' name, upstream's name
  if(TARGET ${name})
    list(APPEND kfuse_LIBRARIES ${name})
    list(APPEND kfuse_DEFINITIONS KFUSE_KOKKOS_KERNELS)
    break()
  endif()
endforeach()

set(kfuse_DEVICE_LANGUAGE CXX)
foreach(language IN ITEMS CUDA HIP)
  if(NOT Kokkos_ENABLE_${language})
    continue()
  endif()
  string(TOLOWER ${language} folder)
  list(APPEND kfuse_BACKENDS ${folder})
  if(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)  # else CXX is the vendor's compiler, or Kokkos puts it in its place
    set(kfuse_DEVICE_LANGUAGE ${language})
    if(NOT DEFINED CMAKE_${language}_ARCHITECTURES)
      string(REGEX REPLACE "^90$" "90a" architectures "${Kokkos_${language}_ARCHITECTURES}")  # a: with wgmma
      set(CMAKE_${language}_ARCHITECTURES ${architectures})
    endif()
    enable_language(${language})
  endif()
endforeach()
if(Kokkos_ENABLE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  list(APPEND kfuse_LIBRARIES CUDA::cublasLt)
endif()

function(kfuse_device_sources)
  if(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${kfuse_DEVICE_LANGUAGE})
  endif()
endfunction()

list(JOIN kfuse_DEFINITIONS ", " definitions)
message(STATUS "kfuse on Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}; ${Kokkos_DIR}) ${definitions}")
