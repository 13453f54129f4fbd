sticky_test(base_test LABEL unit SOURCES unit/base/exit_codes_test.cc unit/base/text_test.cc
  DEPS sticky::base)
