add_executable(shim_adopt_probe unit/shim/adopt_probe.c)
target_link_libraries(shim_adopt_probe PRIVATE stickyinvoc)
target_compile_options(shim_adopt_probe PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(shim_adopt_probe PROPERTIES
  C_STANDARD_REQUIRED ON C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
if(STICKY_SANITIZE)
  target_link_options(shim_adopt_probe PRIVATE "-fsanitize=${STICKY_SANITIZE}")
endif()

sticky_test(shim_test LABEL unit
  SOURCES unit/shim/attach_test.cc unit/shim/attach_refused_test.cc unit/shim/adopt_test.cc
  DEPS stickyinvoc sticky::wire sticky::device Threads::Threads)
add_dependencies(shim_test shim_adopt_probe)
