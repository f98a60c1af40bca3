# SPDX-License-Identifier: Apache-2.0
# Installs kfuse, then builds and runs a user's project (this folder) that finds it, and one that builds it along.
#   cmake -Dbuild=FOLDER -Dsource=FOLDER -Dwork=FOLDER -Dconfiguration=TYPE "-Doptions=-DA=B;..." -P run.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(NOTICE "${command}\n${output}")
    message(FATAL_ERROR "failed (above)")
  endif()
endfunction()

function(build_and_run folder)
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${folder} ${options} ${ARGN})
  run(${CMAKE_COMMAND} --build ${folder} --config ${configuration})
  run(${folder}/user)
endfunction()

set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${prefix})
run(${CMAKE_COMMAND} --install ${build} --config ${configuration} --prefix ${prefix})

file(GLOB_RECURSE installed ${prefix}/*.cmake)
foreach(file IN LISTS installed)
  file(READ ${file} text)
  foreach(folder IN ITEMS ${source} ${build})
    string(FIND "${text}" ${folder} position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}, which users do not have")
    endif()
  endforeach()
endforeach()

build_and_run(${work}/found -DCMAKE_PREFIX_PATH=${prefix})

function(must_be_refused reason)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/refused --fresh ${options}
    -DCMAKE_PREFIX_PATH=${prefix} ${ARGN} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE error)
  string(REGEX REPLACE "[ \n]+" " " error "${error}")
  if(status EQUAL 0 OR NOT error MATCHES "${reason}")
    message(FATAL_ERROR "with ${ARGN}, the installed kfuse was not refused because of '${reason}':\n${error}")
  endif()
endfunction()
must_be_refused("version: 0\\." -Dkfuse_WANTED_VERSION=99.0)
must_be_refused("models are built for the devices" -DKokkos_ENABLE_HIP=ON -DKokkos_ENABLE_CUDA=OFF)

build_and_run(${work}/along -Dkfuse_SOURCE=${source})
