// What people read: aligned tables, readable sizes and ages, and nothing that a terminal obeys.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"
#include "tools/stickyctl/staleness.h"
#include "tools/stickyctl/text_table.h"
#include "tools/stickyctl/user_names.h"

namespace sticky::stickyctl {

// `staleness`: of each state, for a column of its own; empty: none was asked for.
std::string StatesText(const std::vector<wire::StateInfo>& states,
                       std::span<const Staleness> staleness = {});
// leases: those on this state. manifest: of it; null while there is none.
std::string StateText(const wire::StateInfo& state, const std::vector<wire::LeaseInfo>& leases,
                      const UserNames& users, const wire::ManifestView* manifest = nullptr);
std::string StalenessText(const Staleness& staleness);
std::string LeasesText(const std::vector<wire::LeaseInfo>& leases, const UserNames& users);
std::string StatusText(const wire::StatusReply& status, const UserNames& users);

// Those of `leases` that are on `epoch` of the state `name`.
std::vector<wire::LeaseInfo> LeasesOn(const std::string& name, std::uint64_t epoch,
                                      std::vector<wire::LeaseInfo> leases);

// "ready", "filling 33%", "queued, place 2", "ready, closed", "cancelled".
std::string PhaseText(const wire::StateInfo& state);
// ", after 12 s in the queue": behind the time that a load took; empty when it never waited there.
std::string QueuedText(const wire::StateInfo& state);
// What is to be said of a state that was drained by hand to whoever asks for it; empty for others.
std::string ClosedText(const wire::StateInfo& state);
// "place 2 of the queue, needs 4.00 GiB": of a state that is queued.
std::string QueueText(const wire::StateInfo& state);
// "held by pid 7 of user alice and pid 8 of user bob": whose holds keep a state; empty: nobody's.
std::string HoldersText(const std::vector<wire::LeaseInfo>& leases, const UserNames& users);
// A line for each note of the loader; nothing when there is none.
std::string NotesText(const wire::ManifestView& manifest);
// Tensors and assets; of a file state, its files.
std::string ManifestText(const wire::ManifestView& manifest);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_
