find_package(nlohmann_json REQUIRED CONFIG)

sticky_test(weights_cases_test LABEL cases
  SOURCES unit/weights/expected_cases_test.cc DEPS sticky::weights)
sticky_test(weights_test LABEL unit
  SOURCES unit/weights/convert_test.cc unit/weights/gguf_model_test.cc
          unit/weights/load_plan_test.cc unit/weights/model_config_test.cc
  DEPS sticky::weights nlohmann_json::nlohmann_json)
