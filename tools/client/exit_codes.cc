#include "tools/client/exit_codes.h"

namespace sticky::tools {

int ExitCodeOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kCorrupt:
      return kExitBadInput;
    case Code::kNotFound:
      return kExitNoInput;
    case Code::kUnavailable:
    case Code::kOutOfMemory:
      return kExitTryAgain;
    case Code::kPermissionDenied:
      return kExitNotAllowed;
    case Code::kDeviceLost:
    case Code::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

}  // namespace sticky::tools
