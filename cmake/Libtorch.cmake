# libtorch from the pip wheel, as our own imported target: the wheel's own CMake package demands a full CUDA toolkit even for CPU use.
if(TARGET Libtorch::cpu)
  return()
endif()
set(WIREWISE_PYTHON "" CACHE FILEPATH "The Python whose torch wheel to link (default: .venv of the source tree, else python3)")
if(NOT WIREWISE_PYTHON)
  set(WIREWISE_PYTHON python3)
  if(SKBUILD)  # pip builds a wheel: the Python that pip runs on
    set(WIREWISE_PYTHON ${Python_EXECUTABLE})
  elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    set(WIREWISE_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
endif()
if(NOT WIREWISE_TORCH_DIR)
  execute_process(COMMAND ${WIREWISE_PYTHON} -c
      "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "No torch found by ${WIREWISE_PYTHON}. Run ./run build, pass -DWIREWISE_PYTHON=…, or build with -DWIREWISE_TORCH=OFF.")
  endif()
  set(WIREWISE_TORCH_DIR ${torch_dir} CACHE PATH "The torch package's folder")
endif()

add_library(Libtorch::cpu INTERFACE IMPORTED)
set_target_properties(Libtorch::cpu PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${WIREWISE_TORCH_DIR}/include;${WIREWISE_TORCH_DIR}/include/torch/csrc/api/include"
  # The include folder holds another fmt than the system's library: where it is seen, it is used from its headers alone.
  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;FMT_HEADER_ONLY=1"
  INTERFACE_LINK_LIBRARIES "${WIREWISE_TORCH_DIR}/lib/libtorch_cpu.so;${WIREWISE_TORCH_DIR}/lib/libc10.so"
  INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined;-Wl,-rpath,${WIREWISE_TORCH_DIR}/lib")
