sticky_test(weights_cases_test LABEL cases
  SOURCES unit/weights/expected_cases_test.cc DEPS sticky::weights)
