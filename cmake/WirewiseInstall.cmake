# What `cmake --install` leaves: the program, the libraries, their headers, and a package for find_package(Wirewise). Core and torch are
# two export sets, so that a user of Wirewise::core needs no torch wheel.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Wirewise)

set_target_properties(wirewise_core PROPERTIES EXPORT_NAME core)
install(TARGETS wirewise_core wirewise_core_dependencies EXPORT WirewiseCore ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT WirewiseCore NAMESPACE Wirewise:: FILE WirewiseCore.cmake DESTINATION ${package_dir})

set(not_for_users PATTERN "cli" EXCLUDE)
if(TARGET wirewise_torch)
  set_target_properties(wirewise_torch PROPERTIES EXPORT_NAME torch)
  install(TARGETS wirewise_torch EXPORT WirewiseTorch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT WirewiseTorch NAMESPACE Wirewise:: FILE WirewiseTorch.cmake DESTINATION ${package_dir})
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/Libtorch.cmake DESTINATION ${package_dir})
else()
  list(APPEND not_for_users PATTERN "torch" EXCLUDE)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/wirewise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${not_for_users})

# The program finds libtorch in the wheel it was linked with.
set_target_properties(wirewise PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS wirewise RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE ${CMAKE_SOURCE_DIR}/THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/WirewiseConfig.cmake.in ${CMAKE_BINARY_DIR}/WirewiseConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/WirewiseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/WirewiseConfig.cmake ${CMAKE_BINARY_DIR}/WirewiseConfigVersion.cmake DESTINATION ${package_dir})
