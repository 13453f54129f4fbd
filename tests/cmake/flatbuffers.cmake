sticky_test(wire_test LABEL unit
  SOURCES unit/flatbuffers/wire_codec_test.cc unit/flatbuffers/wire_hostile_test.cc
          unit/flatbuffers/wire_manifest_test.cc unit/flatbuffers/wire_socket_test.cc
          unit/flatbuffers/wire_blob_test.cc unit/flatbuffers/wire_record_test.cc
  DEPS sticky::wire flatbuffers::flatbuffers)
target_include_directories(wire_test SYSTEM PRIVATE "${PROJECT_BINARY_DIR}/gen")
