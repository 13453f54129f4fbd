// What --json prints. Keys are only ever added within one schema version; bytes, milliseconds and
// counts are whole numbers with their unit in the key.
//
// Thread: any thread.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_JSON_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"
#include "tools/client/outcome.h"
#include "tools/stickyctl/staleness.h"

namespace sticky::stickyctl {

using Json = nlohmann::ordered_json;

inline constexpr int kJsonSchemaVersion = 1;

// {"schema_version": 1}: what every document begins with.
Json Document();

Json StateJson(const wire::StateInfo& state);
Json StatesJson(const std::vector<wire::StateInfo>& states);
Json LeasesJson(const std::vector<wire::LeaseInfo>& leases);
Json StatusJson(const wire::StatusReply& status);
// A whole document: events are printed one a line.
Json EventJson(const wire::Event& event);
// Adds "stale" (null: unknown) and "stale_reason" to a state.
void AddStaleness(const Staleness& staleness, Json& state);
// The dtypes of the tensors of two dimensions and more, those of most bytes first.
std::vector<std::string> MatrixDtypes(const wire::ManifestView& manifest);
// Adds "base_digest", "cpu", "whole_files" and "matrix_dtypes" to a state. manifest: null while
// there is none.
void AddMaking(const wire::ManifestView* manifest, Json& state);
// What the loader wants people to know.
Json NotesJson(const wire::ManifestView& manifest);
// Adds "tensors" and "assets" to `document`.
void AddManifest(const wire::ManifestView& manifest, Json& document);
Json ErrorJson(const client::Failed& failed);

// One line of ASCII: no byte of it means anything to a terminal, whatever the names in it are.
std::string Dump(const Json& document);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_JSON_H_
