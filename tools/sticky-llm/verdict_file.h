// VerdictFile: the output of a run while it grows, and the resumption of one that was cut off.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKY_LLM_VERDICT_FILE_H_
#define STICKY_TOOLS_STICKY_LLM_VERDICT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/sticky-llm/claims.h"

namespace sticky::llm {

class VerdictFile {
 public:
  // Opens OUTPUT.partial: a new one, or what an earlier run left, whose last line is dropped when
  // it is not whole. `belongs_to`: one line that is the same for the same input and model.
  // Errors: kInvalidArgument when it belongs to something else, or a line, whose number is named,
  //   is not a verdict that a run wrote; kUnavailable when another process is writing it;
  //   kPermissionDenied and others as the system says.
  static Result<VerdictFile> Open(const std::string& output_path, const std::string& belongs_to);

  // The verdicts of an earlier run, in their order.
  const std::vector<Verdict>& earlier() const { return earlier_; }

  // Appends whole lines. Errors: kOutOfMemory (a full disk), kCorrupt (EIO).
  Status Append(const std::string& lines);
  // Puts the finished output in its place, in one step, and removes the partial file.
  Status Finish();

 private:
  VerdictFile(std::string output_path, UniqueFd fd)
      : output_path_(std::move(output_path)), fd_(std::move(fd)) {}
  Status ReadEarlier(const std::string& header);
  std::string PartialPath() const { return output_path_ + ".partial"; }

  std::string output_path_;
  UniqueFd fd_;
  std::size_t header_bytes_ = 0;
  std::vector<Verdict> earlier_;
};

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_VERDICT_FILE_H_
