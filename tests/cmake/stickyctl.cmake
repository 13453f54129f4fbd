sticky_test(stickyctl_test LABEL unit
  SOURCES unit/stickyctl/daemon_client_test.cc
          unit/stickyctl/findings_test.cc unit/stickyctl/gather_facts_test.cc
          unit/stickyctl/lent_files_test.cc
          unit/stickyctl/options_test.cc unit/stickyctl/prepare_build_test.cc unit/stickyctl/progress_test.cc
          unit/stickyctl/render_test.cc unit/stickyctl/render_top_test.cc
          unit/stickyctl/staleness_test.cc unit/stickyctl/template_text_test.cc
  DEPS sticky::stickyctl_parts sticky::device Threads::Threads)

# With the real programs.
sticky_test(stickyctl_commands_test LABEL integration
  SOURCES integration/stickyctl_test.cc integration/stickyctl_load_test.cc
  DEPS sticky::test_daemon sticky::device nlohmann_json::nlohmann_json util)
sticky_test(stickyctl_exit_codes_test LABEL integration
  SOURCES integration/stickyctl_exit_codes_test.cc
  DEPS sticky::test_daemon)
sticky_test(stickyctl_doctor_test LABEL integration
  SOURCES integration/stickyctl_doctor_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
sticky_test(stickyctl_template_test LABEL integration
  SOURCES integration/stickyctl_template_test.cc
  DEPS sticky::test_daemon sticky::weights nlohmann_json::nlohmann_json)
sticky_test(stickyctl_lives_test LABEL integration
  SOURCES integration/stickyctl_lives_test.cc integration/stickyctl_told_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
sticky_test(stickyctl_watch_test LABEL integration
  SOURCES integration/stickyctl_watch_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json util)
sticky_test(installed_templates_test LABEL integration
  SOURCES integration/installed_templates_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
sticky_test(stickyctl_run_files_test LABEL integration
  SOURCES integration/stickyctl_run_files_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
sticky_test(stickyctl_build_test LABEL integration
  SOURCES integration/stickyctl_build_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
# The examples, as users compile them: C11 and nothing but the library.
foreach(example build_table build_kmer_index find_kmer sum)
  add_executable(example_${example} "${PROJECT_SOURCE_DIR}/shim/examples/${example}.c")
  target_link_libraries(example_${example} PRIVATE stickyinvoc m)
  target_compile_options(example_${example} PRIVATE -Wall -Wextra -Wpedantic)
  set_target_properties(example_${example} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON
    C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/examples")
  if(STICKY_SANITIZE)
    target_link_options(example_${example} PRIVATE "-fsanitize=${STICKY_SANITIZE}")
  endif()
  add_dependencies(stickyctl_build_test example_${example})
endforeach()
# A builder whose child keeps the arena mapped.
add_executable(sticky_forking_builder testing/forking_builder.c)
target_link_libraries(sticky_forking_builder PRIVATE stickyinvoc)
set_target_properties(sticky_forking_builder PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
if(STICKY_SANITIZE)
  target_link_options(sticky_forking_builder PRIVATE "-fsanitize=${STICKY_SANITIZE}")
endif()
add_dependencies(stickyctl_build_test sticky_forking_builder)
foreach(test stickyctl_build_test stickyctl_commands_test stickyctl_exit_codes_test stickyctl_doctor_test
        stickyctl_template_test stickyctl_lives_test stickyctl_watch_test
        stickyctl_run_files_test installed_templates_test)
  add_dependencies(${test} stickyctl stickyd sticky-loader)
endforeach()
add_dependencies(stickyctl_commands_test shim_adopt_probe)

# tools/dev/make_model against what a load takes.
find_program(STICKY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
sticky_script_test(MakeModel LABEL integration
  COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/integration/make_model_test.py")

# Need packages from PyPI and Debian's python3-torch: tools/check installs them, and fails when they
# cannot be had. By itself a test without them skips, and says why.
if(NOT STICKY_SANITIZE STREQUAL "thread")  # there are no programs then
  add_test(NAME FileStatesInPython
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/integration/file_states_test.py"
            "${PROJECT_BINARY_DIR}")
  set_tests_properties(FileStatesInPython PROPERTIES LABELS slow TIMEOUT 400 SKIP_RETURN_CODE 77)
  # Builds llama.cpp, once, which takes ten minutes and more: on demand only.
  add_test(NAME peers.llama_completion
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/peers/llama_completion_test.py"
            "${PROJECT_BINARY_DIR}")
  set_tests_properties(peers.llama_completion PROPERTIES LABELS peers TIMEOUT 3600
    SKIP_RETURN_CODE 77)
endif()
