sticky_test(stickyctl_test LABEL unit
  SOURCES unit/stickyctl/exit_codes_test.cc unit/stickyctl/options_test.cc
          unit/stickyctl/progress_test.cc unit/stickyctl/render_test.cc
  DEPS sticky::stickyctl_parts)
