find_package(nlohmann_json REQUIRED CONFIG)
sticky_test(golden_models_test LABEL conformance
  SOURCES conformance/golden_models_test.cc
  DEPS sticky::llm_source nlohmann_json::nlohmann_json)
add_dependencies(golden_models_test engine_cpu)
sticky_test(engine_test LABEL unit
  SOURCES unit/engine/cpu_ops_test.cc unit/engine/engine_test.cc DEPS sticky::engine)
add_dependencies(engine_test engine_cpu)
