// What stickyctl prints: tables for people, JSON (schema_version 1) for scripts.
//
// Under --json, stdout carries exactly one JSON object, errors included; sizes are whole bytes and
// times whole milliseconds, with the unit in the key.
//
// Thread: one thread at a time.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_OUTPUT_H_
#define STICKY_TOOLS_STICKYCTL_OUTPUT_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::tools {

using Json = nlohmann::ordered_json;

Json ToJson(const wire::StateInfo& state);
Json ToJson(const wire::LeaseInfo& lease);
Json ToJson(const wire::StatusReply& status);
Json ToJson(const wire::ManifestTensor& tensor);
Json ErrorToJson(const Error& error, int exit_code);

// Prints {"schema_version": 1, ...facts}.
void PrintJson(Json facts);

std::string StatesTable(const std::vector<wire::StateInfo>& states);
std::string LeasesTable(const std::vector<wire::LeaseInfo>& leases);
std::string StateDetails(const wire::StateInfo& state);
std::string StatusDetails(const wire::StatusReply& status);
std::string TensorsTable(const std::vector<wire::ManifestTensor>& tensors);

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_STICKYCTL_OUTPUT_H_
