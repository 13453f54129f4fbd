sticky_library(test_process SOURCES testing/process.cc testing/wire_client.cc
  DEPS sticky::base sticky::wire)
sticky_library(test_daemon SOURCES testing/daemon_process.cc testing/hung_file.cc
  DEPS sticky::test_process GTest::gtest)
target_compile_definitions(sticky_test_daemon PRIVATE
  STICKY_BUILD_DIR="${PROJECT_BINARY_DIR}" STICKY_SANITIZE="${STICKY_SANITIZE}")

sticky_test(daemon_core_test LABEL unit
  SOURCES unit/daemon/node_leases_test.cc unit/daemon/node_loads_test.cc
          unit/daemon/line_budget_test.cc unit/daemon/node_access_test.cc
          unit/daemon/node_epochs_test.cc unit/daemon/node_installed_test.cc
          unit/daemon/node_kept_test.cc unit/daemon/node_room_test.cc
  DEPS sticky::daemon_core)

sticky_test(daemon_io_test LABEL unit SOURCES unit/daemon/closer_test.cc
  DEPS sticky::daemon_io sticky::test_process THREADED)
# Not THREADED, for the reason below.
sticky_test(daemon_kept_test LABEL unit
  SOURCES unit/daemon/kept_states_test.cc unit/daemon/keeper_parts_test.cc
          unit/daemon/memory_freer_test.cc
  DEPS sticky::daemon_io sticky::keeper)
# Random histories of the core; docs/reliability.md, "The simulator".
sticky_library(test_sim SOURCES sim/history.cc sim/invariants.cc sim/model.cc sim/outside.cc
  sim/outside_actions.cc sim/outside_kept.cc sim/players.cc sim/saboteur.cc sim/trace.cc
  DEPS sticky::daemon_core)
sticky_test(simulator_test LABEL sim SOURCES sim/simulator_test.cc sim/saboteur_test.cc
  DEPS sticky::test_sim)

# With the real programs.
sticky_test(daemon_life_test LABEL integration SOURCES integration/daemon_life_test.cc
  DEPS sticky::test_daemon sticky::device)
sticky_test(daemon_socket_test LABEL integration SOURCES integration/daemon_socket_test.cc
  DEPS sticky::test_daemon)
sticky_test(hostile_client_test LABEL fault SOURCES fault/hostile_client_test.cc
  DEPS sticky::test_daemon)
sticky_test(hostile_builder_test LABEL fault SOURCES fault/hostile_builder_test.cc
  DEPS sticky::test_daemon)
# Not THREADED: the thread sanitizer knows one table of descriptors a process, and stickyd has two.
sticky_test(hung_file_test LABEL fault SOURCES fault/hung_file_test.cc
  DEPS sticky::test_daemon)
sticky_test(crowded_node_test LABEL fault SOURCES fault/crowded_node_test.cc
  DEPS sticky::test_daemon)
sticky_test(loader_fault_test LABEL fault SOURCES fault/loader_fault_test.cc
  DEPS sticky::test_daemon)
add_executable(sticky_fake_loader testing/fake_loader.cc)
target_link_libraries(sticky_fake_loader PRIVATE sticky_flags sticky::device sticky::wire)
set_target_properties(sticky_fake_loader PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
add_dependencies(loader_fault_test sticky_fake_loader)
foreach(test crowded_node_test daemon_life_test daemon_socket_test hostile_builder_test
        hostile_client_test hung_file_test loader_fault_test)
  add_dependencies(${test} stickyd sticky-loader)
endforeach()
sticky_test(outlive_test LABEL integration SOURCES integration/outlive_test.cc
  DEPS sticky::test_daemon sticky::device)
add_dependencies(outlive_test stickyd sticky-loader sticky-keeper)
