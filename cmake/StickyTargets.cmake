# One way to declare a library, a program, a run-time module and a test, so that warnings,
# sanitizers and folders are the same everywhere.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")  # tests run real models: -O0 would take minutes
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")

# The build tree has the layout of the installed one, so programs find each other the same way:
# bin/, lib/, lib/stickyinvoc/ (modules), libexec/stickyinvoc/ (programs that only programs start).
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

add_library(sticky_flags INTERFACE)
target_include_directories(sticky_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(sticky_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wnon-virtual-dtor>"
  # GCC 12 sees overlaps in optimised string additions where there are none (its bug 105651).
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STICKY_WERROR}>>:-Werror>")
# A library that a program does not use costs every short-lived start of it.
target_link_options(sticky_flags INTERFACE "-Wl,--as-needed")
if(STICKY_SANITIZE)
  target_compile_options(sticky_flags INTERFACE
    "-fsanitize=${STICKY_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all")
  target_link_options(sticky_flags INTERFACE "-fsanitize=${STICKY_SANITIZE}")
endif()
if(STICKY_SANITIZE MATCHES "undefined")
  # The check of types looks at memory through a pipe, and finds fault with every object once a
  # process has no descriptors left, which tests bring about.
  target_compile_options(sticky_flags INTERFACE -fno-sanitize=vptr)
endif()

if(STICKY_FUZZ)  # what libFuzzer watches to see where an input leads
  target_compile_options(sticky_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What the sanitizers are told in every test and in the programs that it starts: one variable a
# property, since gtest_discover_tests() takes lists apart.
set(sticky_test_properties "")
if(STICKY_SANITIZE MATCHES "address")
  # intercept_tls_get_addr=0: without it the leak check of GCC 12 dies in threads of libgomp, on the
  # thread-locals of a module that is opened at run time. Why was not found out; the crash goes away
  # with one thread.
  set(sticky_test_properties
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0"
    ENVIRONMENT_MODIFICATION "UBSAN_OPTIONS=set:print_stacktrace=1")
elseif(STICKY_SANITIZE MATCHES "thread")
  set(sticky_test_properties ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1")
endif()

# sticky_library(<name> SOURCES ... [DEPS ...] [PRIVATE_DEPS ...]): a static library and its alias
# sticky::<name>.
function(sticky_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(sticky_${name} STATIC ${ARG_SOURCES})
  add_library(sticky::${name} ALIAS sticky_${name})
  target_link_libraries(sticky_${name} PUBLIC sticky_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# sticky_program(<name> SOURCES ... [DEPS ...] [INTERNAL]): a program in bin/, or, INTERNAL, in
# libexec/stickyinvoc/; installed.
function(sticky_program name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sticky_flags ${ARG_DEPS})
  target_compile_definitions(${name} PRIVATE STICKY_VERSION="${PROJECT_VERSION}")
  if(ARG_INTERNAL)
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/libexec/stickyinvoc")
    install(TARGETS ${name} DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/stickyinvoc")
  else()
    install(TARGETS ${name} DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endfunction()

# sticky_module(<name> SOURCES ... [DEPS ...]): a shared object that is opened at run time, in
# lib/stickyinvoc/<name>.so; installed.
function(sticky_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sticky_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/stickyinvoc")
  install(TARGETS ${name} DESTINATION "${CMAKE_INSTALL_LIBDIR}/stickyinvoc")
endfunction()

# sticky_test(<name> LABEL <unit|integration|...> SOURCES ... [DEPS ...] [TIMEOUT seconds] [THREADED]):
# one binary, one CTest entry a TEST. Paths that tests need are compiled in. THREADED: its subject
# has threads of our own, so it also runs under the thread sanitizer, where no other test is run.
function(sticky_test name)
  cmake_parse_arguments(ARG "THREADED" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sticky_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    STICKY_SOURCE_DIR="${PROJECT_SOURCE_DIR}" STICKY_BUILD_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(STICKY_SANITIZE STREQUAL "thread" AND NOT ARG_THREADED)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_dependencies(sticky_tests ${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES
    LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} ${sticky_test_properties})
endfunction()

# sticky_script_test(<name> LABEL <label> COMMAND ... [TIMEOUT seconds]): a test that is a script,
# run from the source tree. Scripts have nothing to show a sanitizer, except those that run our
# programs: give these ANY_BUILD.
function(sticky_script_test name)
  cmake_parse_arguments(ARG "ANY_BUILD" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(STICKY_SANITIZE AND NOT ARG_ANY_BUILD)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "STICKY_BUILD_DIR=${PROJECT_BINARY_DIR}")
endfunction()

# sticky_fuzzer(<name> SOURCES ... [DEPS ...] [CORPUS ...]): LLVMFuzzerTestOneInput for one kind of
# foreign bytes. CORPUS: files and folders of them, besides tests/data/fuzz/<name>/ if it is there.
#
# With STICKY_FUZZ it is linked with libFuzzer, as the test fuzz_<name> with the label fuzz. In any
# other build it is linked with a loop over the corpus, as the unit test <name>_corpus.
function(sticky_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;CORPUS" ${ARGN})
  set(corpus)
  if(EXISTS "${PROJECT_SOURCE_DIR}/tests/data/fuzz/${name}")
    list(APPEND corpus "${PROJECT_SOURCE_DIR}/tests/data/fuzz/${name}")
  endif()
  foreach(folder ${ARG_CORPUS})
    list(APPEND corpus "${PROJECT_SOURCE_DIR}/${folder}")
  endforeach()
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE sticky_flags ${ARG_DEPS})
  set_target_properties(fuzz_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(STICKY_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz_${name} COMMAND "${PROJECT_SOURCE_DIR}/tests/fuzz/run_fuzzer"
      "$<TARGET_FILE:fuzz_${name}>" "${PROJECT_BINARY_DIR}/fuzz/${name}" ${corpus})
    # The fuzzer ends by itself, after $STICKY_FUZZ_SECONDS, which may be a night.
    set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz TIMEOUT 100000
      ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
  elseif(STICKY_SANITIZE STREQUAL "thread")
    set_target_properties(fuzz_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  else()
    target_sources(fuzz_${name} PRIVATE fuzz/corpus_main.cc)
    add_test(NAME ${name}_corpus COMMAND fuzz_${name} ${corpus})
    set_tests_properties(${name}_corpus PROPERTIES LABELS unit TIMEOUT 120
      ${sticky_test_properties})
  endif()
  add_dependencies(sticky_tests fuzz_${name})
endfunction()
