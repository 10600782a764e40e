# The layers, lowest first. Each folder of src/wirewise is an object library that may use the folders before it; core and torch are
# their two sums. A folder's sources are all its .cpp files: a new file needs no change here.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED CONFIG)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_package(pugixml REQUIRED)
find_package(yaml-cpp REQUIRED)
find_path(HWLOC_INCLUDE_DIR hwloc.h REQUIRED)
find_library(HWLOC_LIBRARY hwloc REQUIRED)

add_library(wirewise_options INTERFACE)
target_include_directories(wirewise_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
# Sums must not depend on what the compiler contracts.
target_compile_options(wirewise_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off
  $<$<BOOL:${WIREWISE_WERROR}>:-Werror>
  # g++ 12 sees overlap in every "literal" + std::string that it inlines (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(WIREWISE_SANITIZE)
  target_compile_options(wirewise_options INTERFACE -fsanitize=${WIREWISE_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(wirewise_options INTERFACE -fsanitize=${WIREWISE_SANITIZE})
endif()
find_program(WIREWISE_MOLD mold)
if(WIREWISE_MOLD)
  target_link_options(wirewise_options INTERFACE -fuse-ld=mold)
endif()
target_compile_definitions(wirewise_options INTERFACE WIREWISE_VERSION="${PROJECT_VERSION}")

add_library(wirewise_core_dependencies INTERFACE)
target_link_libraries(wirewise_core_dependencies INTERFACE Threads::Threads fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json
  tomlplusplus::tomlplusplus OpenSSL::Crypto pugixml::pugixml yaml-cpp ${XXHASH_LIBRARY} ${HWLOC_LIBRARY} ${CMAKE_DL_LIBS})
target_include_directories(wirewise_core_dependencies SYSTEM INTERFACE
  $<BUILD_INTERFACE:${XXHASH_INCLUDE_DIR}> $<BUILD_INTERFACE:${HWLOC_INCLUDE_DIR}>)

# wirewise_layer(name [dependency …]): the object library of src/wirewise/<name>.
function(wirewise_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/wirewise/${name}/*.cpp)
  if(name STREQUAL "train")
    list(FILTER sources EXCLUDE REGEX "/loop[^/]*\\.cpp$")
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(wirewise_${name}_objects OBJECT ${sources})
  target_link_libraries(wirewise_${name}_objects PRIVATE wirewise_options wirewise_core_dependencies)
  set_property(GLOBAL APPEND PROPERTY WIREWISE_CORE_OBJECTS wirewise_${name}_objects)
endfunction()

foreach(layer base wiring comm model strategy schedule sim plan train)
  wirewise_layer(${layer})
endforeach()

# Figures and descriptions that the program carries within itself.
include(WirewiseData)
file(GLOB embedded_data CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/links.toml ${CMAKE_SOURCE_DIR}/data/collective_curves.csv ${CMAKE_SOURCE_DIR}/data/hosts/*.toml
  ${CMAKE_SOURCE_DIR}/data/clusters/*.toml)
wirewise_embed(${CMAKE_BINARY_DIR}/embedded_data.cpp ${embedded_data})
target_sources(wirewise_wiring_objects PRIVATE ${CMAKE_BINARY_DIR}/embedded_data.cpp)

# UCX carries the bytes between hosts. Its headers are needed to build, its library is loaded when it is asked for.
find_path(UCX_INCLUDE_DIR ucp/api/ucp.h)
if(UCX_INCLUDE_DIR)
  target_include_directories(wirewise_comm_objects SYSTEM PRIVATE ${UCX_INCLUDE_DIR})
  target_compile_definitions(wirewise_comm_objects PRIVATE WIREWISE_WITH_UCX)
else()
  message(STATUS "UCX: ucp/api/ucp.h not found (Debian: libucx-dev); this build runs on one host only")
endif()

get_property(core_objects GLOBAL PROPERTY WIREWISE_CORE_OBJECTS)
add_library(wirewise_core STATIC)
foreach(objects ${core_objects})
  target_sources(wirewise_core PRIVATE $<TARGET_OBJECTS:${objects}>)
endforeach()
target_link_libraries(wirewise_core PUBLIC wirewise_core_dependencies)
target_include_directories(wirewise_core PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
add_library(Wirewise::core ALIAS wirewise_core)

if(WIREWISE_TORCH)
  include(Libtorch)
  file(GLOB torch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/wirewise/torch/*.cpp ${CMAKE_SOURCE_DIR}/src/wirewise/train/loop*.cpp)
  if(torch_sources)
    # The c10d backend on its own: all of torch/ that the Python module needs.
    set(c10d_sources ${torch_sources})
    list(FILTER c10d_sources INCLUDE REGEX "/(c10d_|store_c10d|dtype_torch)[^/]*\\.cpp$")
    list(REMOVE_ITEM torch_sources ${c10d_sources})
    add_library(wirewise_c10d_objects OBJECT ${c10d_sources})
    target_link_libraries(wirewise_c10d_objects PRIVATE wirewise_options wirewise_core_dependencies Libtorch::cpu)
    add_library(wirewise_torch STATIC ${torch_sources} $<TARGET_OBJECTS:wirewise_c10d_objects>)
    target_link_libraries(wirewise_torch PRIVATE $<BUILD_INTERFACE:wirewise_options> PUBLIC wirewise_core Libtorch::cpu)
    add_library(Wirewise::torch ALIAS wirewise_torch)
  endif()
endif()

# The command line: all but main() is a library, so that tests reach it. Files that include libtorch (torch_*.cpp) are compiled apart: its
# include folder brings a formatting library of its own that must not meet the system's.
file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/wirewise/cli/*.cpp)
list(FILTER cli_sources EXCLUDE REGEX "/main\\.cpp$")
set(cli_torch_sources ${cli_sources})
list(FILTER cli_torch_sources INCLUDE REGEX "/torch_[^/]*\\.cpp$")
list(FILTER cli_sources EXCLUDE REGEX "/torch_[^/]*\\.cpp$")
add_library(wirewise_cli STATIC ${cli_sources})
target_link_libraries(wirewise_cli PRIVATE wirewise_options PUBLIC wirewise_core CLI11::CLI11)
if(TARGET wirewise_torch)
  target_compile_definitions(wirewise_cli PRIVATE WIREWISE_WITH_TORCH)
  add_library(wirewise_cli_torch OBJECT ${cli_torch_sources})
  target_link_libraries(wirewise_cli_torch PRIVATE wirewise_options wirewise_torch CLI11::CLI11)
  target_sources(wirewise_cli PRIVATE $<TARGET_OBJECTS:wirewise_cli_torch>)
  target_link_libraries(wirewise_cli PUBLIC $<LINK_ONLY:wirewise_torch>)
endif()
add_executable(wirewise ${CMAKE_SOURCE_DIR}/src/wirewise/cli/main.cpp)
target_link_libraries(wirewise PRIVATE wirewise_options wirewise_cli)
set_target_properties(wirewise PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
