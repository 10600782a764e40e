# The Python package as its users have it: each file of tests/python is one test, run by pytest over the module of the build tree.
if(NOT TARGET wirewise_python)
  return()
endif()
file(GLOB python_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/python/*_test.py)
foreach(file ${python_tests})
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "_test$" "" name ${name})
  add_test(NAME Python.${name} COMMAND ${WIREWISE_PYTHON} -m pytest -q -ra -p no:cacheprovider ${file})
  set_tests_properties(Python.${name} PROPERTIES LABELS python TIMEOUT 3600
    ENVIRONMENT "PYTHONPATH=${CMAKE_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;OMP_NUM_THREADS=1;WIREWISE_BUILD_DIR=${CMAKE_BINARY_DIR};WIREWISE_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
endforeach()
