find_package(nlohmann_json REQUIRED CONFIG)
sticky_test(llm_unit_test LABEL unit SOURCES unit/llm/claims_test.cc
  DEPS sticky::llm sticky::test_process)
sticky_test(smollm2_test LABEL conformance TIMEOUT 600 SOURCES conformance/smollm2_test.cc
  DEPS sticky::llm nlohmann_json::nlohmann_json)
add_dependencies(smollm2_test engine_cpu)
sticky_test(sticky_llm_test LABEL integration TIMEOUT 600
  SOURCES integration/sticky_llm_test.cc
  DEPS sticky::test_daemon nlohmann_json::nlohmann_json)
add_dependencies(sticky_llm_test sticky-llm stickyctl stickyd sticky-loader)
