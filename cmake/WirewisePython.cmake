# The extension module of the Python package: python/wirewise with wirewise/_C beside it, in the build tree under build/python and in
# wheels (component `python`). One wheel serves every environment with its release of torch: all but libtorch, OpenSSL and the system's C and C++
# libraries is inside, hidden, and torch's libraries are found beside the package.
execute_process(COMMAND ${WIREWISE_PYTHON} -c
    "import sysconfig; print(sysconfig.get_path('include') + ';' + sysconfig.get_config_var('EXT_SUFFIX'))"
  OUTPUT_VARIABLE python_facts OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR NOT EXISTS "${WIREWISE_TORCH_DIR}/lib/libtorch_python.so")
  message(FATAL_ERROR "The Python module needs a Python with torch, but ${WIREWISE_PYTHON} has none. Pass -DWIREWISE_PYTHON=….")
endif()
list(GET python_facts 0 python_include)
list(GET python_facts 1 python_suffix)
if(NOT EXISTS ${python_include}/Python.h)
  message(STATUS "No Python.h in ${python_include} (Debian: python3-dev): the Python module is left out")
  return()
endif()

# base/ with the log's libraries compiled in, not linked: they are not where pip installs.
file(GLOB python_base_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/wirewise/base/*.cpp)
list(FILTER python_base_sources EXCLUDE REGEX "/philox\\.cpp$")
add_library(wirewise_python_base OBJECT ${python_base_sources})
target_link_libraries(wirewise_python_base PRIVATE wirewise_options Threads::Threads spdlog::spdlog_header_only fmt::fmt-header-only
  nlohmann_json::nlohmann_json)
target_compile_definitions(wirewise_python_base PRIVATE XXH_INLINE_ALL)

add_library(wirewise_python MODULE ${CMAKE_SOURCE_DIR}/python/module.cpp $<TARGET_OBJECTS:wirewise_python_base>
  $<TARGET_OBJECTS:wirewise_comm_objects> $<TARGET_OBJECTS:wirewise_c10d_objects>)
# Not Libtorch::cpu itself, whose run path names this machine's torch.
target_include_directories(wirewise_python SYSTEM PRIVATE ${python_include} $<TARGET_PROPERTY:Libtorch::cpu,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(wirewise_python PRIVATE $<TARGET_PROPERTY:Libtorch::cpu,INTERFACE_COMPILE_DEFINITIONS>)
target_link_libraries(wirewise_python PRIVATE wirewise_options Threads::Threads $<TARGET_PROPERTY:Libtorch::cpu,INTERFACE_LINK_LIBRARIES>
  ${WIREWISE_TORCH_DIR}/lib/libtorch_python.so OpenSSL::Crypto ${CMAKE_DL_LIBS})
set(exports ${CMAKE_SOURCE_DIR}/python/exports.map)
target_link_options(wirewise_python PRIVATE -Wl,--allow-shlib-undefined -Wl,--version-script=${exports} -Wl,--as-needed -Wl,--gc-sections)
set_target_properties(wirewise_python PROPERTIES PREFIX "" OUTPUT_NAME _C SUFFIX ${python_suffix} CXX_VISIBILITY_PRESET hidden
  LINK_DEPENDS ${exports} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/wirewise INSTALL_RPATH "$ORIGIN/../torch/lib")
install(TARGETS wirewise_python LIBRARY DESTINATION wirewise COMPONENT python EXCLUDE_FROM_ALL)  # not with the program and libraries

# CUDA's part lies beside the module, which loads it when the first tensor of a CUDA device comes; absent where the torch of the build has no
# CUDA. Like the module it needs torch's libraries and those that torch needs, where pip puts them beside the package.
if(TARGET wirewise_cuda_objects)
  add_library(wirewise_python_cuda SHARED $<TARGET_OBJECTS:wirewise_cuda_objects> $<TARGET_OBJECTS:wirewise_python_base>
    $<TARGET_OBJECTS:wirewise_comm_objects>)
  target_link_libraries(wirewise_python_cuda PRIVATE wirewise_options Threads::Threads ${wirewise_cuda_libraries}
    $<TARGET_PROPERTY:Libtorch::cpu,INTERFACE_LINK_LIBRARIES> OpenSSL::Crypto ${CMAKE_DL_LIBS})
  set(cuda_exports ${CMAKE_SOURCE_DIR}/python/cuda_exports.map)
  target_link_options(wirewise_python_cuda PRIVATE -Wl,--allow-shlib-undefined -Wl,--version-script=${cuda_exports} -Wl,--as-needed -Wl,--gc-sections)
  cmake_path(RELATIVE_PATH wirewise_cuda_include BASE_DIRECTORY ${wirewise_wheels} OUTPUT_VARIABLE cuda_place)
  cmake_path(GET cuda_place PARENT_PATH cuda_place)
  set_target_properties(wirewise_python_cuda PROPERTIES OUTPUT_NAME wirewise_cuda LINKER_LANGUAGE CXX LINK_DEPENDS ${cuda_exports}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/wirewise
    INSTALL_RPATH "$ORIGIN/../torch/lib:$ORIGIN/../${cuda_place}/lib:$ORIGIN/../nvidia/nccl/lib")
  add_dependencies(wirewise_python wirewise_python_cuda)
  install(TARGETS wirewise_python_cuda LIBRARY DESTINATION wirewise COMPONENT python EXCLUDE_FROM_ALL)
endif()

# In the build tree the package is the source's files, linked, beside the module.
file(GLOB python_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/wirewise/*.py ${CMAKE_SOURCE_DIR}/python/wirewise/*.pyi)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/python/wirewise)
foreach(file ${python_files})
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${CMAKE_BINARY_DIR}/python/wirewise/${name} SYMBOLIC)
endforeach()
