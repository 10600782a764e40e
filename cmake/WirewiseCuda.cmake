# libwirewise_cuda.so: all that needs CUDA and NCCL, built where the torch wheel brings their headers, and loaded only when a program asks
# for a device. It links what it uses of the core itself and shows one symbol, so that it fits the program and the Python module alike.
get_filename_component(wirewise_wheels ${WIREWISE_TORCH_DIR} DIRECTORY)
file(GLOB wirewise_cuda_include ${wirewise_wheels}/nvidia/cu[0-9]*/include)
file(GLOB wirewise_cudart ${wirewise_wheels}/nvidia/cu[0-9]*/lib/libcudart.so.[0-9]*)
file(GLOB wirewise_nccl ${wirewise_wheels}/nvidia/nccl/lib/libnccl.so.[0-9]*)
set(wirewise_nccl_include ${wirewise_wheels}/nvidia/nccl/include)
foreach(needed ${wirewise_cuda_include}/cuda_runtime_api.h ${wirewise_nccl_include}/nccl.h ${WIREWISE_TORCH_DIR}/lib/libtorch_cuda.so
    "${wirewise_cudart}" "${wirewise_nccl}")
  if(NOT EXISTS "${needed}")
    message(STATUS "No libwirewise_cuda.so (--device cuda will be refused): the torch of ${WIREWISE_TORCH_DIR} has no CUDA with it")
    return()
  endif()
endforeach()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/wirewise/cuda/*.cpp)
# Compiled once for two libraries: this one, and that of the Python package (WirewisePython.cmake).
add_library(wirewise_cuda_objects OBJECT ${cuda_sources} ${CMAKE_SOURCE_DIR}/src/wirewise/torch/dtype_torch.cpp)
target_compile_definitions(wirewise_cuda_objects PRIVATE USE_C10D_NCCL USE_CUDA)
target_include_directories(wirewise_cuda_objects SYSTEM PRIVATE ${wirewise_cuda_include} ${wirewise_nccl_include})
target_link_libraries(wirewise_cuda_objects PRIVATE wirewise_options wirewise_core_dependencies Libtorch::cpu)
set_target_properties(wirewise_cuda_objects PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
set(wirewise_cuda_libraries ${WIREWISE_TORCH_DIR}/lib/libtorch_cuda.so ${WIREWISE_TORCH_DIR}/lib/libc10_cuda.so ${wirewise_cudart} ${wirewise_nccl})

add_library(wirewise_cuda SHARED $<TARGET_OBJECTS:wirewise_cuda_objects>)
target_link_libraries(wirewise_cuda PRIVATE wirewise_options wirewise_core Libtorch::cpu ${wirewise_cuda_libraries})
target_link_options(wirewise_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined-version)
set_target_properties(wirewise_cuda PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} INSTALL_RPATH_USE_LINK_PATH ON)
add_dependencies(wirewise wirewise_cuda)
# Installed, it is found in ../lib beside the program's folder.
install(TARGETS wirewise_cuda LIBRARY DESTINATION lib)
