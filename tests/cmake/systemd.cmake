# An interpreter does not have the sanitizers' libraries in it, but starts programs that have.
find_program(STICKY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME SystemdUnits
  COMMAND "${STICKY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/layout/units_test.py"
          "${PROJECT_BINARY_DIR}/systemd/test" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
set_tests_properties(SystemdUnits PROPERTIES LABELS layout TIMEOUT 120)
