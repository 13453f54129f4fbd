#include "tools/client/prepare_load.h"

#include <cstdint>
#include <utility>

#include <sys/resource.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"

namespace sticky::client {

Digest TemplateDigest(std::string_view canonical) {
  const XXH128_hash_t hash = XXH3_128bits(canonical.data(), canonical.size());
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = bytes.digest[i];
  return digest;
}

namespace {

Failed NoTemplate(const Error& why) {
  Error error = why;
  error.message =
      "load a template: " + why.message +
      (why.code == Code::kNotFound ? "; give the path of a YAML file with `name` and `source.path`"
       : why.code == Code::kPermissionDenied ? "; it is read with your own rights"
                                             : "; docs/templates.md has every key");
  return Failed{Stage::kTemplate, error};
}

Failed NoModel(const config::Template& made, const std::string& template_path, const Error& why) {
  Error error = why;
  error.message = "load '" + made.name + "': " + why.message + "; source.path of '" +
                  Escape(template_path) + "' is '" + Escape(made.source_path) + "'";
  return Failed{Stage::kModel, error};
}

}  // namespace

Outcome<PreparedLoad> PrepareLoad(const std::string& template_path) {
  PreparedLoad load;
  Result<config::Template> made = config::LoadTemplate(template_path);
  if (!made.ok()) return NoTemplate(made.error());
  load.made = std::move(made).value();
  if (const Status named = wire::CheckStateName(load.made.name); !named.ok()) {
    return Failed{Stage::kTemplate,
                  Error{Code::kInvalidArgument,
                        "read '" + Escape(template_path) + "': " + named.error().message}};
  }
  Result<std::vector<weights::OpenFile>> files = weights::ResolveModel(load.made.source_path);
  if (!files.ok()) return NoModel(load.made, template_path, files.error());
  load.files = std::move(files).value();
  if (load.files.size() > wire::kFileCountMax) {
    return Failed{Stage::kModel,
                  Error{Code::kInvalidArgument,
                        Format("load '%s': '%s' has %zu files, at most %u are taken",
                               load.made.name.c_str(), Escape(load.made.source_path).c_str(),
                               load.files.size(), wire::kFileCountMax)}};
  }
  load.request.state = load.made.name;
  load.request.template_digest = TemplateDigest(load.made.canonical);
  load.request.source = load.made.source_path;
  load.request.dtype = load.made.dtype;
  load.request.policy.pin = load.made.pin;
  load.request.huge_pages = load.made.huge_pages;
  load.request.file_count = static_cast<std::uint32_t>(load.files.size());
  return load;
}

WideDescriptorLimit::WideDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  const rlimit wide{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &wide) == 0) old_soft_ = limit.rlim_cur;
}

WideDescriptorLimit::~WideDescriptorLimit() {
  rlimit limit{};
  if (old_soft_ == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = old_soft_;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace sticky::client
