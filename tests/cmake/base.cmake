sticky_test(base_test LABEL unit SOURCES unit/base/text_test.cc DEPS sticky::base)
