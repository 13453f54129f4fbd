#include "config/template.h"

#include <cerrno>
#include <cstdlib>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "config/policy_reader.h"
#include "config/source_reader.h"
#include "config/state_name.h"
#include "config/yaml_reader.h"

namespace sticky::config {
namespace {

Result<std::string> ReadName(const YamlMapping& top) {
  STICKY_ASSIGN(const auto name, top.Text("name"));
  if (!name || name->empty()) return top.At("name", "'name' is missing: what the state is called");
  if (!IsStateName(*name)) {
    return top.At("name", Format("'name' wants 1 to %zu of A-Z a-z 0-9 . _ - +, a letter or digit "
                                 "first, found '%s'",
                                 kStateNameBytesMax, Escape(*name).c_str()));
  }
  return *name;
}

Result<DtypeChoice> ReadDtype(const YamlMapping& top) {
  STICKY_ASSIGN(const auto text, top.Text("dtype"));
  if (!text) return DtypeChoice::kAuto;
  for (int i = 0; i < kDtypeChoiceCount; ++i) {
    const auto choice = static_cast<DtypeChoice>(i);
    if (*text == Name(choice)) return choice;
  }
  return top.Find("dtype")->Wants("auto, bf16, f16 or f32");
}

Result<BuildWhen> ReadBuild(const YamlMapping& top) {
  STICKY_ASSIGN(const auto text, top.Text("build"));
  if (!text) return BuildWhen::kManual;
  for (int i = 0; i < kBuildWhenCount; ++i) {
    const auto when = static_cast<BuildWhen>(i);
    if (*text == Name(when)) return when;
  }
  return top.Find("build")->Wants("manual, on-demand or at-start");
}

Status ReadMemory(const YamlMapping& top, Template& made) {
  STICKY_ASSIGN(const YamlMapping memory, top.Mapping("memory"));
  STICKY_TRY(memory.OnlyKeys({"huge_pages", "prefault"}));
  STICKY_ASSIGN(const auto huge_pages, memory.Bool("huge_pages"));
  STICKY_ASSIGN(const auto prefault, memory.Bool("prefault"));
  made.huge_pages = huge_pages.value_or(made.huge_pages);
  made.prefault = prefault.value_or(made.prefault);
  if (made.huge_pages && made.source.kind == SourceKind::kFiles) {
    return memory.At("huge_pages",
                     "'memory.huge_pages' is true, but would round the sizes of 'source.files', "
                     "which are kept as they are: leave it out");
  }
  return Ok{};
}

// Tensors have dtypes; files have none.
Status CheckDtypeFits(const YamlMapping& top, const Template& made) {
  if (made.source.kind != SourceKind::kFiles || made.dtype == DtypeChoice::kAuto) return Ok{};
  return top.At("dtype", std::string("'dtype' is '") + Name(made.dtype) +
                             "', but 'source.files' are kept as they are: leave it out");
}

// One line a fact, whatever the spelling was: two templates that mean the same have one digest.
std::string Canonical(const Template& made) {
  const auto word = [](bool is_true) { return is_true ? "true" : "false"; };
  return "name=" + made.name + "\n" + CanonicalSource(made.source) + "device=" + made.device +
         "\ndtype=" + Name(made.dtype) + "\nmemory.huge_pages=" + word(made.huge_pages) +
         "\nmemory.prefault=" + word(made.prefault) + "\n";
}

}  // namespace

Digest TemplateDigest(std::string_view canonical) {
  const XXH128_hash_t hash = XXH3_128bits(canonical.data(), canonical.size());
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = bytes.digest[i];
  return digest;
}

Result<Template> ParseTemplate(std::string_view text, const std::string& directory,
                               const std::string& file_name) {
  STICKY_ASSIGN(const YamlMapping top, YamlMapping::Parse(text, file_name));
  STICKY_TRY(top.OnlyKeys({"name", "source", "device", "dtype", "lifetime", "priority", "access",
                           "labels", "max_leases", "memory", "build"}));
  Template made;

  STICKY_ASSIGN(made.name, ReadName(top));
  STICKY_ASSIGN(made.source, ReadSource(top, directory));
  STICKY_ASSIGN(made.dtype, ReadDtype(top));
  STICKY_TRY(CheckDtypeFits(top, made));
  STICKY_ASSIGN(const auto device, top.Text("device"));
  if (device && *device != "host") {
    return top.At("device", "'device' is '" + Escape(*device) + "'; this version knows host");
  }
  STICKY_TRY(ReadMemory(top, made));
  STICKY_ASSIGN(made.policy, ReadPolicy(top));
  STICKY_ASSIGN(made.build, ReadBuild(top));

  made.canonical = Canonical(made);
  return made;
}

Result<Template> LoadTemplate(const std::string& path) {
  STICKY_ASSIGN(const std::string text, ReadSmallFile(path));
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return ErrnoError("find '" + Escape(path) + "'", errno);
  const std::string whole(real);
  std::free(real);
  return ParseTemplate(text, whole.substr(0, whole.rfind('/')), path);
}

Result<BuildTemplate> LoadBuildTemplate(const std::string& path) {
  STICKY_ASSIGN(const std::string text, ReadSmallFile(path));
  STICKY_ASSIGN(const YamlMapping top, YamlMapping::Parse(text, path));
  for (const char* const key : {"source", "device", "dtype", "memory", "build"}) {
    if (!top.Has(key)) continue;
    return top.AtKey(key, "'" + std::string(key) +
                              "' is for `stickyctl load`; what a builder makes is its own: a "
                              "template for `stickyctl build` has name, lifetime, priority, "
                              "access, labels and max_leases");
  }
  STICKY_TRY(top.OnlyKeys({"name", "lifetime", "priority", "access", "labels", "max_leases"}));
  BuildTemplate made;
  STICKY_ASSIGN(made.name, ReadName(top));
  STICKY_ASSIGN(made.policy, ReadPolicy(top));
  return made;
}

}  // namespace sticky::config
