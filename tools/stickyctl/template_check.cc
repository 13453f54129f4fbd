// The command `template check`: all that a load would find out before it copies, without a daemon.

#include <optional>
#include <utility>

#include <unistd.h>

#include "base/cpu_features.h"
#include "base/text.h"
#include "config/template.h"
#include "daemon/load/whole_files.h"
#include "flatbuffers/wire_manifest.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/template_report.h"
#include "weights/sha256.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

constexpr std::int64_t kDaemonMs = 2000;  // a daemon is asked, not needed

struct NodeSays {
  wire::StatusReply status;
  wire::TemplatesReply installed;
};

Outcome<NodeSays> AskNode(const Request& request) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket, kDaemonMs));
  NodeSays says;
  STICKY_STEP(says.status, daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  STICKY_STEP(says.installed, daemon.AskFor<wire::TemplatesReply>(wire::TemplatesRequest{}));
  return says;
}

// Why the daemon would not take this load of this user, apart from what passes.
std::optional<Error> RefusalOf(const TemplateReport& report, const NodeSays& says) {
  const config::Template& made = report.made;
  const std::uint32_t uid = ::geteuid();
  const std::string doing = "check '" + made.name + "': ";
  if (report.needed_bytes > says.status.budget_bytes) {
    return Error{Code::kOutOfMemory,
                 doing + "it needs " + ByteCount(report.needed_bytes) +
                     ", but this node's budget is " + ByteCount(says.status.budget_bytes) +
                     "; take another dtype or node, or give the daemon more (--memory)"};
  }
  if (uid == 0 || uid == says.status.uid) return std::nullopt;  // the node's owner
  if (made.policy.priority > 0) {
    return Error{Code::kPermissionDenied,
                 doing + Format("priority %d: above 0 is for the node's owner; user %u may ask for "
                                "0 and less",
                                made.policy.priority, uid)};
  }
  for (const wire::InstalledTemplate& one : says.installed.templates) {
    if (one.name != made.name || !one.problem.empty()) continue;
    return Error{Code::kPermissionDenied,
                 doing +
                     "the name is an installed template's (`stickyctl template ls`), whose "
                     "state the node's owner makes; use another name"};
  }
  const std::uint64_t most = says.status.own_bytes_max;
  if (most == 0 || says.status.own_bytes + report.needed_bytes <= most) return std::nullopt;
  return Error{Code::kOutOfMemory,
               doing + "it needs " + ByteCount(report.needed_bytes) +
                   Format("; states of user %u hold ", uid) + ByteCount(says.status.own_bytes) +
                   " of " + ByteCount(most) +
                   ", the limit of one user (limits.per_user.memory); evict one of them"};
}

std::vector<CheckedFile> FactsOf(const std::vector<weights::OpenFile>& files, SourceKind kind) {
  std::vector<CheckedFile> facts;
  for (const weights::OpenFile& file : files) {
    CheckedFile fact;
    fact.name = file.name;
    fact.role = kind == SourceKind::kFiles ? "whole" : file.is_weights ? "weights" : "small";
    fact.size_bytes = file.size_bytes;
    fact.expected_sha256 = file.expected_sha256;
    fact.sha256 = file.blob_sha256;
    facts.push_back(std::move(fact));
  }
  return facts;
}

// Reads every file whole. Errors: as weights::Sha256Of.
Status ReadSha256s(std::span<const weights::SourceFile> files, std::vector<CheckedFile>& facts) {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    STICKY_ASSIGN(facts[i].sha256, weights::Sha256Of(files[i]));
    facts[i].sha256_was_read = true;
  }
  return Ok{};
}

Status CompareSha256s(const std::vector<CheckedFile>& facts) {
  for (const CheckedFile& file : facts) {
    if (!file.expected_sha256 || !file.sha256 || *file.expected_sha256 == *file.sha256) continue;
    const char* const from = file.sha256_was_read ? "" : " by its name in the hub's cache";
    return Error{Code::kCorrupt,
                 "'" + Escape(file.name) + "' has the SHA-256 " + ToHex(*file.sha256) + from +
                     ", but source.expect.sha256 says " + ToHex(*file.expected_sha256) +
                     ": another version, or a damaged download"};
  }
  return Ok{};
}

// The bytes of the model's state, or of files that are kept whole.
Status AddPlan(std::span<const weights::SourceFile> files, Dtype best_dtype,
               TemplateReport& report) {
  if (report.made.source.kind == SourceKind::kFiles) {
    wire::Manifest manifest;
    manifest.whole_files = true;
    manifest.arena_bytes = load::WholeFileArenas(files);
    report.needed_bytes = wire::ArenaMemoryBytes(manifest);
    return Ok{};
  }
  weights::PlanOptions options;
  options.dtype = report.made.dtype;
  options.best_matrix_dtype = best_dtype;
  STICKY_ASSIGN(report.model, LookAtModel(files, options));
  report.needed_bytes = report.model->arena_bytes;
  const bool is_language_model = !report.model->architecture.empty();
  if (options.dtype == DtypeChoice::kAuto && is_language_model) report.auto_dtype = best_dtype;
  return Ok{};
}

Status CheckFiles(std::vector<weights::OpenFile> opened, bool read_all, Dtype best_dtype,
                  TemplateReport& report) {
  report.files = FactsOf(opened, report.made.source.kind);
  const ReadableFiles readable(std::move(opened));
  if (read_all) STICKY_TRY(ReadSha256s(readable.files(), report.files));
  STICKY_TRY(CompareSha256s(report.files));
  return AddPlan(readable.files(), best_dtype, report);
}

Outcome<TemplateReport> CheckTemplate(const Request& request) {
  const client::WideDescriptorLimit wide;
  TemplateReport report;
  report.path = request.options.operands()[0];
  Result<config::BuildTemplate> of_builder = config::LoadBuildTemplate(report.path);
  if (of_builder.ok()) {
    report.made.name = std::move(of_builder.value().name);
    report.made.policy = std::move(of_builder.value().policy);
    report.is_for_builder = true;
    return report;
  }
  STICKY_STEP(client::FoundSource found, client::FindSource(report.path));
  report.made = std::move(found.made);
  report.source = std::move(found.source);
  report.template_digest = config::TemplateDigest(report.made.canonical);
  Dtype best_dtype = BestMatrixDtype();
  Outcome<NodeSays> says = AskNode(request);
  if (says.ok()) {
    const wire::StatusReply& status = says.value().status;
    report.budget = Budget{status.budget_bytes, status.used_bytes};
    best_dtype = status.best_dtype == DtypeChoice::kBf16 ? Dtype::kBf16 : Dtype::kF32;
  } else {
    report.no_budget = says.failed().error.message;
  }
  const Status checked =
      CheckFiles(std::move(found.files), request.options.Has("sha256"), best_dtype, report);
  if (checked.ok() && says.ok()) report.refusal = RefusalOf(report, says.value());
  if (checked.ok()) return report;
  Error error = checked.error();
  error.message = "check '" + report.made.name + "': " + error.message;
  return Failed{Stage::kModel, std::move(error)};
}

}  // namespace

int TemplateCheck(const Request& request, Console& console) {
  Outcome<TemplateReport> outcome = CheckTemplate(request);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const TemplateReport& report = outcome.value();
  if (!report.refusal) {
    console.Print(ReportJson(report), ReportText(report, UsersOfThisNode()));
    return kExitOk;
  }
  if (!console.json()) console.Print(ReportJson(report), ReportText(report, UsersOfThisNode()));
  return console.Fail({Stage::kAnswer, *report.refusal}, ReportJson(report));
}

}  // namespace sticky::stickyctl
