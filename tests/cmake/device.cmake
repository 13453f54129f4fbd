sticky_test(device_test LABEL unit SOURCES unit/device/host_arena_test.cc DEPS sticky::device)
