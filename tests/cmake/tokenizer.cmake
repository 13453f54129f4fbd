sticky_test(tokenizer_conformance_test LABEL conformance
  SOURCES conformance/tokenizer_test.cc
  DEPS sticky::tokenizer sticky::llm_source nlohmann_json::nlohmann_json)
sticky_test(tokenizer_test LABEL unit
  SOURCES unit/tokenizer/chat_test.cc unit/tokenizer/split_pattern_test.cc
          unit/tokenizer/tokenizer_json_test.cc
  DEPS sticky::tokenizer nlohmann_json::nlohmann_json)
