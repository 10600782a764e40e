# The example that Install.CustomModelBuildsOutsideTheTree built, on two ranks under every strategy.
if(TEST Install.CustomModelBuildsOutsideTheTree)
  set_tests_properties(Install.CustomModelBuildsOutsideTheTree PROPERTIES FIXTURES_SETUP custom_model)
  set(custom_model_work ${CMAKE_BINARY_DIR}/consumer/CustomModelBuildsOutsideTheTree)
  add_test(NAME Install.CustomModelTrainsOnTwoRanks COMMAND ${WIREWISE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/torch/custom_model.py
    ${custom_model_work}/prefix/bin/wirewise ${custom_model_work}/build/custom_model)
  set_tests_properties(Install.CustomModelTrainsOnTwoRanks PROPERTIES LABELS install TIMEOUT 300 FIXTURES_REQUIRED custom_model)
endif()
