// Template: how to build a state, as its author wrote it in YAML.
//
// Thread: any thread. The only room that sees yaml-cpp; its exceptions end here.
// Source: docs/templates.md.

#ifndef STICKY_CONFIG_TEMPLATE_H_
#define STICKY_CONFIG_TEMPLATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/policy.h"
#include "base/result.h"
#include "base/source.h"

namespace sticky::config {

struct Template {
  std::string name;  // the state's name
  Source source;     // paths with ~ and ${VAR} expanded, relative to the template's folder
  std::string device = "host";
  DtypeChoice dtype = DtypeChoice::kAuto;
  bool huge_pages = false;  // memory.huge_pages: ask for MFD_HUGETLB
  bool prefault = true;     // memory.prefault: make its pages present before they are written
  Policy policy;
  BuildWhen build = BuildWhen::kManual;
  // One text for all spellings of the same template; digest this. It has what the state is: the
  // policy and `build`, which say how it lives, are no part of it.
  std::string canonical;
};

// `text`: YAML. `directory`: what relative paths are relative to. `file_name`: for messages.
// Errors: kInvalidArgument, "FILE:LINE:COLUMN: ..." with a "did you mean" where one is near, for
//   unknown keys, wrong types, duplicates, missing keys and users that the node does not have;
//   kUnavailable when it cannot say whether it has them; kCorrupt for text that is not YAML.
// Blocking: for as long as the node's user database takes, when the template names users.
Result<Template> ParseTemplate(std::string_view text, const std::string& directory,
                               const std::string& file_name);

// Reads the file at `path` (at most 1 MiB) and parses it. Errors: also kNotFound,
// kPermissionDenied.
Result<Template> LoadTemplate(const std::string& path);

// xxh3-128 of a canonical text: what tells one template, or one recipe of a build, from another.
Digest TemplateDigest(std::string_view canonical);

// What a template says of a state that a builder makes: nothing of its bytes.
struct BuildTemplate {
  std::string name;
  Policy policy;
};

// Reads the file at `path` as a template for `stickyctl build`: name, lifetime, priority, access,
// labels and max_leases, nothing else. Errors: as LoadTemplate.
Result<BuildTemplate> LoadBuildTemplate(const std::string& path);

struct InstalledTemplate {
  std::string path;
  Result<Template> made;  // or what is wrong with the file: the others are there all the same
};
inline constexpr std::size_t kInstalledTemplatesMax = 256;

// The templates of the *.yaml files in `folder`, sorted by path; those whose name begins with a dot
// are passed over. A name that an earlier file has taken is an error of the later one.
// Errors: kNotFound, kPermissionDenied of the folder; kInvalidArgument when it is none, or has more
//   than kInstalledTemplatesMax such files.
Result<std::vector<InstalledTemplate>> LoadTemplateFolder(const std::string& folder);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_TEMPLATE_H_
