sticky_test(config_test LABEL unit
  SOURCES unit/config/node_config_test.cc unit/config/template_folder_test.cc
          unit/config/template_policy_test.cc unit/config/template_source_test.cc
          unit/config/template_test.cc
  DEPS sticky::config sticky::wire)
