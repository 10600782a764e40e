# wirewise as a user runs it: each class of tests/e2e/*_test.py is one test.
find_program(WIREWISE_TORCHRUN torchrun HINTS ${WIREWISE_TORCH_DIR}/../../../../bin NO_CACHE)
file(GLOB e2e_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/e2e/*_test.py)
foreach(file ${e2e_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  get_filename_component(module ${file} NAME_WE)
  file(STRINGS ${file} classes REGEX "^class [A-Za-z0-9]+\\(([A-Za-z]+, )?EndToEnd\\)")
  foreach(class ${classes})
    string(REGEX REPLACE "^class ([A-Za-z0-9]+).*" "\\1" class "${class}")
    add_test(NAME EndToEnd.${class} COMMAND ${WIREWISE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/run.py $<TARGET_FILE:wirewise> ${module}.${class})
    set_tests_properties(EndToEnd.${class} PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 ENVIRONMENT "WIREWISE_TORCHRUN=${WIREWISE_TORCHRUN}")
  endforeach()
endforeach()
set_tests_properties(EndToEnd.Slurm PROPERTIES COST 1000)  # a minute, most of it Slurm's own waiting: first, beside the others
# They measure: by themselves.
set_tests_properties(EndToEnd.BenchFit EndToEnd.ClusterDoctor EndToEnd.RackChoice PROPERTIES RUN_SERIAL TRUE)
