sticky_test(layout_test LABEL layout
  SOURCES layout/enumerations_test.cc
  DEPS stickyinvoc sticky::base flatbuffers::flatbuffers)
add_dependencies(layout_test sticky_wire_headers)
target_include_directories(layout_test SYSTEM PRIVATE "${PROJECT_BINARY_DIR}/gen")

# What the tree must look like, checked by scripts.
set(python /usr/bin/python3)
foreach(test check_layers check_style docs man cases)
  if(EXISTS "${PROJECT_SOURCE_DIR}/tests/layout/${test}_test.py")
    sticky_script_test(layout.${test} LABEL layout
      COMMAND ${python} "${PROJECT_SOURCE_DIR}/tests/layout/${test}_test.py")
  endif()
endforeach()
