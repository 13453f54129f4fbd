#include "tools/stickyctl/staleness.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tools/client/prepare_load.h"

namespace sticky::stickyctl {
namespace {

using Verdict = Staleness::Verdict;

constexpr std::size_t kNamedMax = 4;  // files that one reason tells of

std::string Joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (std::size_t i = 0; i < reasons.size() && i < kNamedMax; ++i) {
    text += (i > 0 ? "; " : "") + reasons[i];
  }
  if (reasons.size() > kNamedMax) text += Format("; and %zu more", reasons.size() - kNamedMax);
  return text;
}

// Empty when the file is the one that was loaded.
std::string Difference(const wire::SourceRef& then, const weights::OpenFile& now) {
  const std::string name = "'" + Escape(then.name) + "'";
  if (then.size_bytes != now.size_bytes) {
    return name + Format(" has %llu bytes, had %llu",
                         static_cast<unsigned long long>(now.size_bytes),
                         static_cast<unsigned long long>(then.size_bytes));
  }
  return then.modified_ns == now.modified_ns ? "" : name + " was written to";
}

}  // namespace

const char* Name(Staleness::Verdict verdict) {
  switch (verdict) {
    case Verdict::kFresh:
      return "no";
    case Verdict::kStale:
      return "yes";
    case Verdict::kUnknown:
      break;
  }
  return "unknown";
}

Staleness CompareSources(const wire::ManifestView& manifest,
                         std::span<const weights::OpenFile> files) {
  if (manifest.source_count() == 0) return {Verdict::kUnknown, "the state's files were not noted"};
  std::map<std::string_view, const weights::OpenFile*> unseen;
  for (const weights::OpenFile& file : files) unseen[file.name] = &file;
  std::vector<std::string> reasons;
  for (std::uint32_t i = 0; i < manifest.source_count(); ++i) {
    const wire::SourceRef then = manifest.source(i);
    const auto now = unseen.find(then.name);
    if (now == unseen.end()) {
      reasons.push_back("'" + Escape(then.name) + "' is gone");
      continue;
    }
    std::string difference = Difference(then, *now->second);
    if (!difference.empty()) reasons.push_back(std::move(difference));
    unseen.erase(now);
  }
  for (const auto& [name, file] : unseen) reasons.push_back("'" + Escape(name) + "' is new");
  if (reasons.empty()) return {Verdict::kFresh, ""};
  return {Verdict::kStale, Joined(reasons)};
}

Staleness CheckSources(const wire::ManifestView& manifest, const std::string& source) {
  if (source.empty() || !manifest.builder().empty()) {
    return {Verdict::kUnknown, "a builder made it, of files that nobody noted"};
  }
  if (!source.starts_with('/')) {
    return {Verdict::kUnknown, "its source '" + Escape(source) + "' is not a whole path"};
  }
  const client::WideDescriptorLimit wide;
  const Result<std::vector<weights::OpenFile>> files = weights::ResolveModel(source);
  if (files.ok()) return CompareSources(manifest, files.value());
  // It was a model when it was loaded.
  const Code code = files.error().code;
  const bool is_other =
      code == Code::kNotFound || code == Code::kCorrupt || code == Code::kInvalidArgument;
  return {is_other ? Verdict::kStale : Verdict::kUnknown, files.error().message};
}

}  // namespace sticky::stickyctl
