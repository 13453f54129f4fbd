find_package(nlohmann_json REQUIRED CONFIG)

sticky_test(weights_cases_test LABEL cases
  SOURCES unit/weights/expected_cases_test.cc DEPS sticky::weights)
sticky_test(weights_test LABEL unit
  SOURCES unit/weights/convert_test.cc unit/weights/gguf_model_test.cc
          unit/weights/load_plan_test.cc unit/weights/model_config_test.cc
          unit/weights/sha256_test.cc
  DEPS sticky::weights nlohmann_json::nlohmann_json)
sticky_test(weights_files_test LABEL integration
  SOURCES integration/resolve_test.cc DEPS sticky::weights_files)
if(TARGET sticky_load)
  sticky_test(load_test LABEL unit THREADED
    SOURCES unit/load/fd_byte_source_test.cc unit/load/fill_arena_test.cc
            unit/load/whole_files_test.cc
    DEPS sticky::load)
  sticky_test(load_smollm2_test LABEL integration SOURCES integration/load_smollm2_test.cc
    DEPS sticky::load sticky::weights_files nlohmann_json::nlohmann_json)
endif()
