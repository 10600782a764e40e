# Data files that the program carries within itself, so that it needs no folder beside it: wirewise_embed(OUTPUT files…) writes a source
# that wiring/embedded.h reads. A changed file is taken in by the next build.
function(wirewise_embed output)
  set(text "// Made by cmake/WirewiseData.cmake from data/.\n#include \"wirewise/wiring/embedded.h\"\n\nnamespace wirewise {\nnamespace {\n")
  set(table "")
  set(number 0)
  foreach(file ${ARGN})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/data ${file})
    file(READ ${file} content HEX)  # a list's separators must not be taken for such
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," content "${content}")
    string(REGEX REPLACE "(('[^']*',){24})" "\\1\n    " content "${content}")
    string(APPEND text "constexpr char kFile${number}[] = {\n    ${content}'\\0'};\n")
    string(APPEND table "    {\"${name}\", {kFile${number}, sizeof kFile${number} - 1}},\n")
    math(EXPR number "${number} + 1")
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  string(APPEND text "constexpr EmbeddedFile kFiles[] = {\n${table}};\n}  // namespace\n\n"
    "std::span<const EmbeddedFile> embedded_files() noexcept { return kFiles; }\n\n}  // namespace wirewise\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
endfunction()
