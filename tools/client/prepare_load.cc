#include "tools/client/prepare_load.h"

#include <cstdint>
#include <utility>

#include <sys/resource.h>

#include "base/text.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::client {

namespace {

constexpr std::size_t kSourceTextBytesMax =
    4000;  // with what follows it, within wire::kTextBytesMax
static_assert(kSourceTextBytesMax + 32 <= wire::kTextBytesMax);

Failed NoTemplate(const Error& why) {
  Error error = why;
  error.message =
      "load a template: " + why.message +
      (why.code == Code::kNotFound ? "; give the path of a YAML file with `name` and `source.path`"
       : why.code == Code::kPermissionDenied ? "; it is read with your own rights"
                                             : "; docs/templates.md has every key");
  return Failed{Stage::kTemplate, error};
}

// How the template names the source, for a message: "source.path of 't.yaml' is '/m.gguf'".
std::string Naming(const Source& source, const std::string& template_path) {
  const std::string of =
      std::string("source.") + Name(source.kind) + " of '" + Escape(template_path) + "'";
  if (source.candidates.size() == 1) return of + " is '" + Escape(source.candidates[0]) + "'";
  return "see " + of;
}

Failed NoModel(const config::Template& made, const std::string& template_path, const Error& why) {
  Error error = why;
  error.message =
      "load '" + made.name + "': " + why.message + "; " + Naming(made.source, template_path);
  return Failed{Stage::kModel, error};
}

Failed TooManyWholeFiles(const config::Template& made, const std::string& template_path,
                         std::size_t count) {
  return Failed{
      Stage::kTemplate,
      Error{Code::kInvalidArgument,
            Format("load '%s': source.files of '%s' has %zu files; at most %u are kept whole, "
                   "each in memory of its own; make several templates, or one archive",
                   made.name.c_str(), Escape(template_path).c_str(), count, wire::kArenaCountMax)}};
}

// What `stickyctl ls` shows: the model's path, or a list of paths that is none itself.
std::string SourceText(const Source& source, const weights::ResolvedSource& resolved) {
  if (source.kind == SourceKind::kPath) return resolved.path;
  std::string text = Format("%zu files: ", source.files.size());
  for (std::size_t i = 0; i < source.files.size(); ++i) {
    const std::string& path = source.files[i].path;
    if (text.size() + path.size() > kSourceTextBytesMax) {
      return text + Format("and %zu more", source.files.size() - i);
    }
    text += path + (i + 1 < source.files.size() ? ", " : "");
  }
  return text;
}

}  // namespace

Outcome<FoundSource> FindSource(const std::string& template_path) {
  FoundSource found;
  Result<config::Template> made = config::LoadTemplate(template_path);
  if (!made.ok()) return NoTemplate(made.error());
  found.made = std::move(made).value();
  if (const Status named = wire::CheckStateName(found.made.name); !named.ok()) {
    return Failed{Stage::kTemplate,
                  Error{Code::kInvalidArgument,
                        "read '" + Escape(template_path) + "': " + named.error().message}};
  }
  Result<weights::ResolvedSource> resolved = weights::Resolve(found.made.source);
  if (!resolved.ok()) return NoModel(found.made, template_path, resolved.error());
  const bool is_whole = found.made.source.kind == SourceKind::kFiles;
  if (is_whole && resolved.value().files.size() > wire::kArenaCountMax) {
    return TooManyWholeFiles(found.made, template_path, resolved.value().files.size());
  }
  found.source = SourceText(found.made.source, resolved.value());
  found.files = std::move(resolved.value().files);
  if (found.files.size() > wire::kFileCountMax) {
    return Failed{Stage::kModel, Error{Code::kInvalidArgument,
                                       Format("load '%s': '%s' has %zu files, at most %u are taken",
                                              found.made.name.c_str(), Escape(found.source).c_str(),
                                              found.files.size(), wire::kFileCountMax)}};
  }
  return found;
}

Outcome<PreparedLoad> PrepareLoad(const std::string& template_path) {
  STICKY_STEP(FoundSource found, FindSource(template_path));
  PreparedLoad load;
  load.made = std::move(found.made);
  load.files = std::move(found.files);
  load.request.state = load.made.name;
  load.request.template_digest = config::TemplateDigest(load.made.canonical);
  load.request.source = std::move(found.source);
  load.request.dtype = load.made.dtype;
  load.request.policy = load.made.policy;
  load.request.prefault = load.made.prefault;
  load.request.huge_pages = load.made.huge_pages;
  load.request.expect_digest = load.made.source.expected.digest;
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
