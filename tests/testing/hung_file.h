// HungFile: a regular file on a file system of our own (FUSE, spoken raw), which answers as long as
// it is let, and then answers nothing: whoever examines the file or closes a descriptor of it hangs
// in the kernel, and not even SIGKILL ends that.
//
// Thread: one thread at a time.
// Source: Linux include/uapi/linux/fuse.h; Documentation/filesystems/fuse.rst.

#ifndef STICKY_TESTS_TESTING_HUNG_FILE_H_
#define STICKY_TESTS_TESTING_HUNG_FILE_H_

#include <atomic>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tests/testing/process.h"

namespace sticky::testing {

class HungFile {
 public:
  // Errors: no FUSE here, or not for us; the message says which.
  static Result<std::unique_ptr<HungFile>> Make();
  ~HungFile();

  // Open for reading; not owned. Whoever forks or starts a program while the file hangs has to have
  // closed it before, so give it to nobody but who is to suffer.
  int fd() const { return file_.get(); }
  static constexpr std::uint64_t kSizeBytes = 4096;

  void Hang() { control_->hangs = true; }
  void Answer() { control_->hangs = false; }  // what is asked from now on
  void CloseOurs() { file_.Reset(); }
  // Ends the file system: whoever hangs goes on, with an error.
  void Release();

 private:
  struct Control {  // shared with the process that serves
    std::atomic<bool> hangs{false};
  };
  HungFile() = default;
  static void Serve(int device, Control& control);

  TempFolder folder_;
  Control* control_ = nullptr;
  Process server_;
  UniqueFd file_;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_HUNG_FILE_H_
