sticky_test(layout_test LABEL layout
  SOURCES layout/enumerations_test.cc
  DEPS stickyinvoc sticky::base flatbuffers::flatbuffers)
add_dependencies(layout_test sticky_wire_headers)
target_include_directories(layout_test SYSTEM PRIVATE "${PROJECT_BINARY_DIR}/gen")
