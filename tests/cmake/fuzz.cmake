# Fuzzers of every parser of bytes that come from others. docs/reliability.md, "Fuzzers".
set(cases tests/data/cases/fixtures)
set(models tests/data/golden/models)
set(model_json "")
foreach(model llama-gqa-tied llama3-scaled-untied qwen2-tied gemma2 stablelm2-1.6b)
  foreach(file config generation_config tokenizer)
    list(APPEND model_json ${models}/${model}/${file}.json)
  endforeach()
endforeach()

sticky_fuzzer(frame SOURCES fuzz/frame_fuzzer.cc DEPS sticky::wire)
sticky_fuzzer(manifest SOURCES fuzz/manifest_fuzzer.cc DEPS sticky::wire)
sticky_fuzzer(record SOURCES fuzz/record_fuzzer.cc DEPS sticky::wire)
sticky_fuzzer(safetensors SOURCES fuzz/safetensors_fuzzer.cc DEPS sticky::weights
  CORPUS ${cases}/st)
sticky_fuzzer(gguf SOURCES fuzz/gguf_fuzzer.cc DEPS sticky::weights CORPUS ${cases}/gguf)
sticky_fuzzer(model_json SOURCES fuzz/model_json_fuzzer.cc DEPS sticky::tokenizer
  CORPUS ${model_json} ${cases}/idx/ok/model.safetensors.index.json
         ${cases}/idx/path-escape/model.safetensors.index.json)
sticky_fuzzer(vocabulary SOURCES fuzz/vocabulary_fuzzer.cc DEPS sticky::tokenizer)
sticky_fuzzer(yaml SOURCES fuzz/yaml_fuzzer.cc DEPS sticky::config sticky::wire
  CORPUS config/template.example.yaml config/stickyinvoc.yaml)
sticky_fuzzer(keeper SOURCES fuzz/keeper_fuzzer.cc DEPS sticky::keeper)
# With the one file of sticky-llm that it needs: its library is half of the product.
find_package(nlohmann_json REQUIRED CONFIG)
sticky_fuzzer(text SOURCES fuzz/text_fuzzer.cc ../tools/sticky-llm/claims.cc
  DEPS sticky::tokenizer nlohmann_json::nlohmann_json CORPUS tests/data/chat)

if(NOT STICKY_FUZZ)  # build by name, and run when a format has changed
  add_executable(fuzz_seeds EXCLUDE_FROM_ALL fuzz/write_seeds.cc)
  target_link_libraries(fuzz_seeds PRIVATE sticky_flags sticky::device sticky::weights sticky::wire)
  set_target_properties(fuzz_seeds PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endif()
