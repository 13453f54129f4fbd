#include "base/exit_codes.h"

namespace sticky {
namespace {

// A file of the user's, or a daemon's word on what it was asked.
int ForInput(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kCorrupt:
      return kExitBadInput;
    case Code::kNotFound:
      return kExitNoInput;
    case Code::kUnavailable:
    case Code::kOutOfMemory:
    case Code::kDeviceLost:  // of this node: another one may do
      return kExitTryAgain;
    case Code::kPermissionDenied:
      return kExitNotAllowed;
    case Code::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

int ForConnection(Code code) {
  switch (code) {
    case Code::kUnavailable:
    case Code::kNotFound:
    case Code::kDeviceLost:
      return kExitNoDaemon;
    case Code::kInvalidArgument:  // the path itself
      return kExitUsage;
    case Code::kOutOfMemory:
      return kExitTryAgain;
    case Code::kPermissionDenied:
      return kExitNotAllowed;
    case Code::kCorrupt:  // what answers does not speak our protocol
    case Code::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

// A daemon's own failure: its options, its config file, its socket.
int ForServing(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return kExitUsage;
    case Code::kUnavailable:  // another daemon has the socket, say
      return kExitNoDaemon;
    default:
      return ForInput(code);
  }
}

int ForOutput(Code code) {
  switch (code) {
    case Code::kInvalidArgument:  // what is there belongs to another run
      return kExitBadInput;
    case Code::kUnavailable:  // another run is writing it
      return kExitTryAgain;
    default:
      return kExitOutput;
  }
}

}  // namespace

int ExitCode(Stage stage, Code code) {
  switch (stage) {
    case Stage::kUsage:
      return kExitUsage;
    case Stage::kTemplate:
    case Stage::kModel:
    case Stage::kAnswer:
      return ForInput(code);
    case Stage::kConnect:
    case Stage::kTalk:
      return ForConnection(code);
    case Stage::kServe:
      return ForServing(code);
    case Stage::kOutput:
      return ForOutput(code);
  }
  return kExitInternal;
}

const char* Name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kDeviceLost:
      return "device_lost";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace sticky
