# An interpreter does not have the sanitizers' libraries in it, but starts programs that have.
find_program(STICKY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME SystemdUnits
  COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/layout/units_test.py"
          "${PROJECT_BINARY_DIR}/systemd/test" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
set_tests_properties(SystemdUnits PROPERTIES LABELS layout TIMEOUT 120)

# Under a service manager of the tests' own; they skip where there can be none, and say why.
foreach(test user_units system_units)
  add_test(NAME systemd.${test}
    COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/systemd/${test}_test.py"
            "${PROJECT_BINARY_DIR}/systemd/test" "${PROJECT_BINARY_DIR}")
  set_tests_properties(systemd.${test} PROPERTIES LABELS systemd TIMEOUT 180 SKIP_RETURN_CODE 77)
endforeach()
