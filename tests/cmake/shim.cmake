add_executable(shim_adopt_probe unit/shim/adopt_probe.c)
target_link_libraries(shim_adopt_probe PRIVATE stickyinvoc)
target_compile_options(shim_adopt_probe PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(shim_adopt_probe PROPERTIES
  C_STANDARD_REQUIRED ON C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
if(STICKY_SANITIZE)
  target_link_options(shim_adopt_probe PRIVATE "-fsanitize=${STICKY_SANITIZE}")
endif()

add_library(shim_header_without_exceptions OBJECT unit/shim/header_without_exceptions.cc)
target_link_libraries(shim_header_without_exceptions PRIVATE sticky_flags stickyinvoc)
target_compile_options(shim_header_without_exceptions PRIVATE -fno-exceptions -fno-rtti)
if(STICKY_SANITIZE)
  target_compile_options(shim_header_without_exceptions PRIVATE -fno-sanitize=vptr)
endif()

sticky_test(shim_test LABEL unit THREADED
  SOURCES unit/shim/attach_test.cc unit/shim/attach_refused_test.cc unit/shim/adopt_test.cc
          unit/shim/header_test.cc unit/shim/isolation_test.cc
  DEPS stickyinvoc sticky::wire sticky::device Threads::Threads)
add_dependencies(shim_test shim_adopt_probe)

add_executable(sticky_fake_stickyd testing/fake_stickyd.cc)
target_link_libraries(sticky_fake_stickyd PRIVATE
  sticky_flags sticky::wire sticky::device Threads::Threads)
set_target_properties(sticky_fake_stickyd PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")

# An interpreter does not have the sanitizers' libraries in it.
if(NOT STICKY_SANITIZE)
  find_program(STICKY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
  add_test(NAME ShimLibrary
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/unit/shim/library_test.py"
            "$<TARGET_FILE:stickyinvoc>"
            "${PROJECT_SOURCE_DIR}/shim/include/stickyinvoc/stickyinvoc.h")
  set_tests_properties(ShimLibrary PROPERTIES LABELS unit TIMEOUT 60
    ENVIRONMENT "PATH=$ENV{PATH}:/usr/sbin:/sbin")
  add_test(NAME ShimPython
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/unit/shim/stickyinvoc_test.py")
  set_tests_properties(ShimPython PROPERTIES LABELS unit TIMEOUT 120 ENVIRONMENT
    "PYTHONPATH=${PROJECT_SOURCE_DIR}/shim/python;STICKYINVOC_LIBRARY=$<TARGET_FILE:stickyinvoc>;STICKY_FAKE_STICKYD=$<TARGET_FILE:sticky_fake_stickyd>")
endif()

sticky_test(invocation_test LABEL integration
  SOURCES integration/invocation_test.cc
  DEPS stickyinvoc sticky::test_daemon)
add_dependencies(invocation_test stickyd sticky-loader stickyctl shim_adopt_probe)
if(NOT STICKY_SANITIZE)
  add_test(NAME Install
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/integration/install_test.py"
            "${PROJECT_BINARY_DIR}")
  set_tests_properties(Install PROPERTIES LABELS "integration;install" TIMEOUT 180)
endif()

sticky_test(build_test LABEL integration SOURCES integration/build_test.cc
  DEPS stickyinvoc sticky::test_daemon)
add_dependencies(build_test stickyd sticky-loader)
if(NOT STICKY_SANITIZE)
  add_test(NAME BuildersInPython
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/integration/python_build_test.py"
            "${PROJECT_BINARY_DIR}")
  set_tests_properties(BuildersInPython PROPERTIES LABELS integration TIMEOUT 180 ENVIRONMENT
    "PYTHONPATH=${PROJECT_SOURCE_DIR}/shim/python;STICKYINVOC_LIBRARY=$<TARGET_FILE:stickyinvoc>")
  add_test(NAME TorchInPython
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/integration/torch_test.py"
            "${PROJECT_BINARY_DIR}")
  set_tests_properties(TorchInPython PROPERTIES
    LABELS slow TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
    "PYTHONPATH=${PROJECT_SOURCE_DIR}/shim/python;STICKYINVOC_LIBRARY=$<TARGET_FILE:stickyinvoc>")
endif()
foreach(test storm_test flat_test)
  sticky_test(${test} LABEL fault TIMEOUT 900 SOURCES fault/${test}.cc
    DEPS stickyinvoc sticky::test_daemon)
  add_dependencies(${test} stickyd sticky-loader sticky-keeper)
  target_compile_definitions(${test} PRIVATE STICKY_SANITIZE="${STICKY_SANITIZE}")
endforeach()
