# Against PyTorch: the same steps from the same weights by autograd and torch.optim.AdamW.
add_executable(parity_run ${CMAKE_CURRENT_SOURCE_DIR}/torch/parity_run.cpp)
target_link_libraries(parity_run PRIVATE wirewise_options wirewise_torch)
foreach(case "gpt2 1 0 1 10 tied" "gpt2 3 3 2 10 untied" "gpt2 2 2 1 10 tied" "llama 2 3 1 10 untied" "llama 4 1 2 10 tied" "llama 1 3 3 10 untied")
  separate_arguments(arguments UNIX_COMMAND "${case}")
  string(REPLACE " " "." name "${case}")
  add_test(NAME Parity.${name} COMMAND ${WIREWISE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/torch/parity.py $<TARGET_FILE:parity_run> ${arguments})
  set_tests_properties(Parity.${name} PROPERTIES LABELS torch)
endforeach()
# The library is loaded by name, so nothing links it.
target_compile_definitions(torch_tests PRIVATE WIREWISE_TORCH_LIBRARY="${WIREWISE_TORCH_DIR}/lib/libc10.so")
if(TARGET wirewise_cuda)
  add_dependencies(torch_tests wirewise_cuda)
endif()
