// The lists that exist in several forms agree, value for value: base, the wire schema and the C
// ABI. And structs of the C ABI have the sizes that other languages' bindings rely on.

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/result.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_protocol_generated.h"
#include "stickyinvoc/stickyinvoc.h"

namespace sticky {
namespace {

namespace fb = wire::fb;

template <typename A, typename B>
constexpr bool Same(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}

#define STICKY_SAME_CODE(base, wire, abi) \
  static_assert(Same(Code::base, fb::ErrorCode::wire) && Same(Code::base, abi))
STICKY_SAME_CODE(kInvalidArgument, InvalidArgument, STI_INVALID_ARGUMENT);
STICKY_SAME_CODE(kNotFound, NotFound, STI_NOT_FOUND);
STICKY_SAME_CODE(kUnavailable, Unavailable, STI_UNAVAILABLE);
STICKY_SAME_CODE(kOutOfMemory, OutOfMemory, STI_OUT_OF_MEMORY);
STICKY_SAME_CODE(kPermissionDenied, PermissionDenied, STI_PERMISSION_DENIED);
STICKY_SAME_CODE(kCorrupt, Corrupt, STI_CORRUPT);
STICKY_SAME_CODE(kDeviceLost, DeviceLost, STI_DEVICE_LOST);
STICKY_SAME_CODE(kInternal, Internal, STI_INTERNAL);
static_assert(Same(fb::ErrorCode::MAX, STI_INTERNAL), "a code is missing above");

#define STICKY_SAME_DTYPE(base, wire, abi) \
  static_assert(Same(Dtype::base, fb::Dtype::wire) && Same(Dtype::base, abi))
STICKY_SAME_DTYPE(kBool, Bool, STI_BOOL);
STICKY_SAME_DTYPE(kU8, U8, STI_U8);
STICKY_SAME_DTYPE(kI8, I8, STI_I8);
STICKY_SAME_DTYPE(kU16, U16, STI_U16);
STICKY_SAME_DTYPE(kI16, I16, STI_I16);
STICKY_SAME_DTYPE(kU32, U32, STI_U32);
STICKY_SAME_DTYPE(kI32, I32, STI_I32);
STICKY_SAME_DTYPE(kU64, U64, STI_U64);
STICKY_SAME_DTYPE(kI64, I64, STI_I64);
STICKY_SAME_DTYPE(kF16, F16, STI_F16);
STICKY_SAME_DTYPE(kBf16, BF16, STI_BF16);
STICKY_SAME_DTYPE(kF32, F32, STI_F32);
STICKY_SAME_DTYPE(kF64, F64, STI_F64);
static_assert(Same(fb::Dtype::MAX, kDtypeCount - 1), "a dtype is missing above");

static_assert(Same(DtypeChoice::kAuto, fb::DtypeChoice::Auto));
static_assert(Same(DtypeChoice::kBf16, fb::DtypeChoice::BF16));
static_assert(Same(DtypeChoice::kF16, fb::DtypeChoice::F16));
static_assert(Same(DtypeChoice::kF32, fb::DtypeChoice::F32));
static_assert(Same(fb::DtypeChoice::MAX, kDtypeChoiceCount - 1), "a choice is missing above");

static_assert(Same(wire::StatePhase::kPlanning, fb::StatePhase::Planning));
static_assert(Same(wire::StatePhase::kFilling, fb::StatePhase::Filling));
static_assert(Same(wire::StatePhase::kReady, fb::StatePhase::Ready));
static_assert(Same(wire::StatePhase::kDraining, fb::StatePhase::Draining));
static_assert(Same(wire::StatePhase::kClosing, fb::StatePhase::Closing));
static_assert(Same(wire::StatePhase::kFailed, fb::StatePhase::Failed));
static_assert(Same(wire::StatePhase::kQueued, fb::StatePhase::Queued));
static_assert(Same(fb::StatePhase::MAX, wire::StatePhase::kQueued), "a phase is missing above");

static_assert(Same(wire::FileRole::kWeights, fb::FileRole::Weights));
static_assert(Same(wire::FileRole::kAsset, fb::FileRole::Asset));
static_assert(Same(fb::FileRole::Whole, wire::FileRole::kWhole));
static_assert(Same(fb::FileRole::MAX, wire::FileRole::kWhole), "a role is missing above");

static_assert(Same(AccessMode::kOwner, fb::AccessMode::Owner));
static_assert(Same(AccessMode::kGroup, fb::AccessMode::Group));
static_assert(Same(AccessMode::kNode, fb::AccessMode::Node));
static_assert(Same(fb::AccessMode::MAX, kAccessModeCount - 1), "an access mode is missing above");

static_assert(Same(BuildWhen::kManual, fb::BuildWhen::Manual));
static_assert(Same(BuildWhen::kOnDemand, fb::BuildWhen::OnDemand));
static_assert(Same(BuildWhen::kAtStart, fb::BuildWhen::AtStart));
static_assert(Same(fb::BuildWhen::MAX, kBuildWhenCount - 1), "a moment is missing above");

static_assert(Same(wire::Placement::kJoin, fb::Placement::Join));
static_assert(Same(wire::Placement::kReplace, fb::Placement::Replace));
static_assert(Same(wire::Placement::kInPlace, fb::Placement::InPlace));
static_assert(Same(fb::Placement::MAX, wire::Placement::kInPlace), "a placement is missing above");

static_assert(Same(wire::EventKind::kLoad, fb::EventKind::Load));
static_assert(Same(wire::EventKind::kReady, fb::EventKind::Ready));
static_assert(Same(wire::EventKind::kLoadFailed, fb::EventKind::LoadFailed));
static_assert(Same(wire::EventKind::kAttach, fb::EventKind::Attach));
static_assert(Same(wire::EventKind::kDetach, fb::EventKind::Detach));
static_assert(Same(wire::EventKind::kEvict, fb::EventKind::Evict));
static_assert(Same(wire::EventKind::kGone, fb::EventKind::Gone));
static_assert(Same(wire::EventKind::kRefusal, fb::EventKind::Refusal));
static_assert(Same(wire::EventKind::kDrain, fb::EventKind::Drain));
static_assert(Same(wire::EventKind::kResume, fb::EventKind::Resume));
static_assert(Same(wire::EventKind::kShutdown, fb::EventKind::Shutdown));
static_assert(Same(wire::EventKind::kBudget, fb::EventKind::Budget));
static_assert(Same(wire::EventKind::kAdopt, fb::EventKind::Adopt));
static_assert(Same(wire::EventKind::kLoadCancelled, fb::EventKind::LoadCancelled));
static_assert(Same(fb::EventKind::MAX, wire::EventKind::kLoadCancelled),
              "an event is missing above");

// shim/python/stickyinvoc/_library.py has these structs by hand; its test expects these sizes.
static_assert(sizeof(sti_error) == 520);
static_assert(sizeof(sti_attach_options) == 32);
static_assert(sizeof(sti_tensor) == 96 && offsetof(sti_tensor, shape) == 32);
static_assert(sizeof(sti_state_info) == 104 && offsetof(sti_state_info, name) == 80);
static_assert(std::is_standard_layout_v<sti_state_info> && std::is_trivial_v<sti_state_info>);

TEST(DtypeNames, TheSchemaBaseAndTheAbiCallThemTheSame) {
  for (int i = 0; i < kDtypeCount; ++i) {
    std::string schema = fb::EnumNameDtype(static_cast<fb::Dtype>(i));
    for (char& c : schema) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(schema, Name(static_cast<Dtype>(i)));
    EXPECT_EQ(schema, sti_dtype_name(i));
  }
  EXPECT_EQ(sti_dtype_name(kDtypeCount), nullptr);
  EXPECT_EQ(sti_dtype_name(-1), nullptr);
}

}  // namespace
}  // namespace sticky
