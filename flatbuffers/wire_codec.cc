#include "flatbuffers/wire_codec.h"

#include "base/text.h"

namespace sticky::wire {
namespace {

bool IsAlphanumeric(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool MayFollow(char c) { return IsAlphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '+'; }

}  // namespace

const char* Name(StatePhase phase) {
  switch (phase) {
    case StatePhase::kPlanning:
      return "planning";
    case StatePhase::kFilling:
      return "filling";
    case StatePhase::kReady:
      return "ready";
    case StatePhase::kDraining:
      return "draining";
    case StatePhase::kClosing:
      return "closing";
    case StatePhase::kFailed:
      return "failed";
    case StatePhase::kQueued:
      return "queued";
  }
  return "unknown";
}

const char* Name(EventKind kind) {
  switch (kind) {
    case EventKind::kLoad:
      return "load";
    case EventKind::kReady:
      return "ready";
    case EventKind::kLoadFailed:
      return "load-failed";
    case EventKind::kAttach:
      return "attach";
    case EventKind::kDetach:
      return "detach";
    case EventKind::kEvict:
      return "evict";
    case EventKind::kGone:
      return "gone";
    case EventKind::kRefusal:
      return "refusal";
    case EventKind::kDrain:
      return "drain";
    case EventKind::kResume:
      return "resume";
    case EventKind::kBudget:
      return "budget";
    case EventKind::kAdopt:
      return "adopt";
    case EventKind::kShutdown:
      return "shutdown";
    case EventKind::kLoadCancelled:
      return "load-cancelled";
  }
  return "unknown";
}

Status CheckStateName(std::string_view name) {
  bool fine = !name.empty() && name.size() <= kStateNameBytesMax && IsAlphanumeric(name[0]);
  for (const char c : name) fine = fine && MayFollow(c);
  if (fine) return Ok{};
  return Error{Code::kInvalidArgument,
               "read state name '" + Escape(name) +
                   Format("': want 1 to %u of A-Z a-z 0-9 . _ - +, a letter or digit first",
                          kStateNameBytesMax)};
}

}  // namespace sticky::wire
