# Tests of the command line, of the source tree's rules, and of what `cmake --install` leaves for others.
wirewise_tests(cli wirewise_cli)
add_dependencies(cli_tests wirewise)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME IncludeDirection.FindsEachWrongArrow COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/include_direction.py --self-test)
add_test(NAME IncludeDirection.PointsUpward COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/include_direction.py ${CMAKE_SOURCE_DIR})
add_test(NAME Documents.FindsEachBrokenLink COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/documents.py --self-test)
add_test(NAME Documents.LinksLeadSomewhere COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/documents.py ${CMAKE_SOURCE_DIR})
add_test(NAME GpuCheck.TellsRightFromWrong COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu_check.py --self-test)
set_tests_properties(GpuCheck.TellsRightFromWrong PROPERTIES LABELS tree)
set_tests_properties(IncludeDirection.FindsEachWrongArrow IncludeDirection.PointsUpward Documents.FindsEachBrokenLink
  Documents.LinksLeadSomewhere PROPERTIES LABELS tree)

# wirewise_consumer_test(name source program expect): a project outside the tree, against what `cmake --install` leaves.
function(wirewise_consumer_test name source program expect)
  add_test(NAME Install.${name} COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${CMAKE_BINARY_DIR} -DSOURCE=${source}
    -DWORK=${CMAKE_BINARY_DIR}/consumer/${name} -DPROGRAM=${program} -DEXPECT=${expect} -DOPTIONS=-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/check.cmake)
  set_tests_properties(Install.${name} PROPERTIES LABELS install TIMEOUT 600)
endfunction()
wirewise_consumer_test(CoreBuildsOutsideTheTree ${CMAKE_CURRENT_SOURCE_DIR}/consumer consumer "gpt2 parameters 124439808 hash e3b0c442 2.00 GiB")
if(TARGET wirewise_torch AND EXISTS ${CMAKE_SOURCE_DIR}/examples/custom_model/CMakeLists.txt)
  wirewise_consumer_test(CustomModelBuildsOutsideTheTree ${CMAKE_SOURCE_DIR}/examples/custom_model custom_model "loss")
endif()
